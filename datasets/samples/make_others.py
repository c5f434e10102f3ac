"""The project-made files of all families but LongBench, in the forms of the official files."""

import hashlib
import json
import os
import random
from fractions import Fraction

import make_longbench
import source_files
from invented import people, person, remark, towns

FOLDER = ""  # set by main()


def write(path, text):
    path = f"{FOLDER}/{path}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def write_rows(path, rows):
    write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def longbench_v2():
    rows = []
    for n in range(5):
        rng = random.Random(f"longbench-v2 {n}")
        places = towns(rng, 8)
        town, choices = places[n], [place.founder for place in rng.sample(places[:5], 4)]
        if town.founder not in choices:
            choices[n % 4] = town.founder
        rows.append({
            "_id": f"kvarena-{n}", "domain": ["Single-Document QA", "Multi-Document QA", "Long In-context Learning"][n % 3],
            "sub_domain": "Towns", "difficulty": ["easy", "hard"][n % 2], "length": ["short", "medium", "long"][n % 3],
            "question": f" Who founded the {town.trade} of {town.name}? ", "choice_A": choices[0], "choice_B": choices[1],
            "choice_C": choices[2], "choice_D": choices[3], "answer": "ABCD"[choices.index(town.founder)],
            "context": "\n\n".join(place.text(rng, 9) for place in places) + "\n"})
    write("longbench-v2/data.json", json.dumps(rows, ensure_ascii=False, indent=1) + "\n")


def longwriter():
    """Requests with what is known of the place, so that there is a prompt to compress."""
    rng = random.Random("longwriter")
    en = [{"prompt": f"Write a {n}-word guide to {town.name} for people who arrive by train. What is known of it:\n\n" +
           "\n\n".join(town.text(rng, 9) for _ in range(12)), "type": "Guide", "length": n}
          for n, town in zip((200, 600, 1000), towns(rng, 3))]
    zh = [{"prompt": "请写一篇300字的文章，介绍青石镇的苹果节。", "type": "Article", "length": 300}]
    write_rows("longwriter/longbench_write.jsonl", en + zh)
    write_rows("longwriter/longbench_write_en.jsonl", en)
    write_rows("longwriter/longwrite_ruler.jsonl",
               [{"prompt": f"Write a {n}-word history of a bridge.", "type": "Ruler", "length": n}
                for n in (500, 2000, 8000)])


def graphwalks():
    """Edges between nodes that are called as the official ones are, by beginnings of MD5 sums of their numbers."""
    rules = ("The lines below are the edges of a directed graph, each from one node to another. Carry out the operation that "
             "follows them. A search to a depth gives the nodes that are first reached after so many edges, without the one "
             "it starts from; the parents of a node are the nodes with an edge to it, without the node itself.\n\n"
             "An example. Edges:\nkilo -> lima\nkilo -> mike\nlima -> mike\n\nOperation:\nFind the parents of node mike.\n"
             "Final Answer: [kilo, lima]\n\nOperation:\nSearch from node mike to depth 1.\nFinal Answer: []\n\n"
             "The graph to work on. Edges:\n")
    form = ("\n\nGive the nodes as a list in the very last line of the answer, as in\nFinal Answer: [one, two]\n"
            "and where there are none\nFinal Answer: []\n")
    rows = []
    for n in range(24):
        rng = random.Random(f"graphwalks {n}")
        names = [hashlib.md5(str(i).encode()).hexdigest()[:10] for i in range((120, 130, 150, 170)[n % 4])]
        edges = [(name, other) for name in names for other in rng.choices(names, k=2)]
        node, depth = rng.choice(names), 1 + n // 2 % 3
        if n % 3 == 0:
            kind, operation = "parents", f"Find the parents of node {node}."
            found = {a for a, b in edges if b == node} - {node}
        else:
            kind, operation = "bfs", f"Search from node {node} to depth {depth}."
            found, seen = {node}, {node}
            for _ in range(depth):
                found = {b for a, b in edges if a in found} - seen
                seen |= found
        prompt = rules + "\n".join(f"{a} -> {b}" for a, b in edges) + f"\n\n\nOperation:\n{operation}" + form
        rows.append({"prompt": prompt, "answer_nodes": sorted(found), "prompt_chars": len(prompt), "problem_type": kind})
    write_rows("graphwalks/graphwalks_128k_and_shorter.jsonl", rows)
    write_rows("graphwalks/graphwalks_256k_to_1mil.jsonl", rows[-6:])


def mrcr():
    """Conversations of short texts about towns, of which some requests come several times."""
    forms = ("letter", "report", "speech", "notice")
    for needles, count in ((2, 24), (4, 8), (8, 8)):
        rows = []
        for n in range(count):
            rng = random.Random(f"mrcr {needles} {n}")
            places = towns(rng, 12)
            pairs = [(place, form) for place in places for form in forms]
            wanted = rng.choice(pairs)
            asked = rng.sample([pair for pair in pairs if pair != wanted], 24 - needles) + [wanted] * needles
            rng.shuffle(asked)
            messages, alike = [], []
            for place, form in asked:
                text = f"A {form} about {place.name}: {place.text(rng, 3)}"
                if (place, form) == wanted:
                    alike.append((len(messages) + 1, text))
                messages += [{"role": "user", "content": f"Write a short {form} about {place.name}."},
                             {"role": "assistant", "content": text}]
            which, prefix = rng.randrange(needles), f"{rng.getrandbits(48):012x}"
            messages.append({"role": "user", "content": f"Give me {form_of(which)} {wanted[1]} about {wanted[0].name} again, word for "
                                                        f"word. Begin with {prefix} and add nothing."})
            prompt = json.dumps(messages)
            rows.append({"prompt": prompt, "answer": prefix + alike[which][1], "random_string_to_prepend": prefix,
                         "n_needles": needles, "desired_msg_index": alike[which][0], "total_messages": len(messages),
                         "n_chars": sum(len(each["content"]) for each in messages)})
        write_rows(f"mrcr/{needles}needle.jsonl", rows)


def babilong():
    """Stories in the words of bAbI, sentence by sentence among others, with what is asked about them."""
    people, rooms = ["Mary", "John", "Daniel", "Sandra"], ["bathroom", "bedroom", "garden", "hallway", "kitchen", "office"]
    things, sides = ["apple", "football", "milk"], [("north", "south"), ("east", "west")]

    def moved(rng, who, where):
        return f"{who} {rng.choice(('moved', 'went', 'travelled', 'journeyed'))} to the {where}."

    def walks(rng, count):
        return [(rng.choice(people), rng.choice(rooms)) for _ in range(count)]

    def qa1(rng):
        story = walks(rng, 8)
        who = rng.choice(story)[0]
        return [moved(rng, *step) for step in story], f"Where is {who}? ", [room for name, room in story if name == who][-1]

    def qa2(rng):
        who, thing, path = rng.choice(people), rng.choice(things), rng.sample(rooms, 3)
        story = [moved(rng, who, path[0]), f"{who} picked up the {thing} there.", moved(rng, who, path[1]),
                 moved(rng, who, path[2])]
        for other in walks(rng, 5):
            if other[0] != who:
                story.insert(rng.randrange(len(story)), moved(rng, *other))
        return story, f"Where is the {thing}? ", path[2]

    def qa3(rng):
        story, question, last = qa2(rng)
        who, thing = story[-1].split()[0], question.split()[-1].strip("?")
        before = [line for line in story if line.startswith(who) and line.split()[2] == "to"][-2]
        return story, f"Where was the {thing} before the {last}? ", before.split()[-1].strip(".")

    def qa4(rng):
        (a, b), (one, two, three) = rng.choice(sides), rng.sample(rooms, 3)
        return ([f"The {one} is {a} of the {two}.", f"The {three} is {b} of the {two}."],
                *rng.choice([(f"What is {a} of the {two}? ", one), (f"What is {b} of the {two}? ", three)]))

    def qa5(rng):
        (one, two), thing = rng.sample(["Bill", "Fred", "Jeff", "Mary"], 2), rng.choice(things)
        story = [f"{one} travelled to the {rng.choice(rooms)}.", f"{one} took the {thing} there.",
                 f"{one} handed the {thing} to {two}.", f"{two} went back to the {rng.choice(rooms)}."]
        return (story, *rng.choice([(f"Who gave the {thing} to {two}? ", one), (f"Who did {one} give the {thing} to? ", two),
                                    (f"What did {one} give to {two}? ", thing)]))

    for make in (qa1, qa2, qa3, qa4, qa5):
        rows = []
        for n in range(20):
            rng = random.Random(f"babilong {make.__name__} {n}")
            story, question, target = make(rng)
            lines = [line for town in towns(rng, 10) for line in town.text(rng, 8).split(". ")]
            for at, fact in zip(sorted(rng.sample(range(len(lines)), len(story)), reverse=True), reversed(story)):
                lines.insert(at, fact.strip("."))
            rows.append({"input": ". ".join(line.strip(".") for line in lines) + ".", "question": question, "target": target})
        write_rows(f"babilong/{make.__name__}_4k.jsonl", rows)


def form_of(number):
    return "the " + ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")[number]


def gsm8k():
    names = ["Maria Holt", "Peter Cole", "Anna Reed", "David Frost", "Laura Shaw", "Thomas Lane"]
    rows = []
    for n in range(6):
        a, b, c = 3 + n, 4 + 2 * n, 5 + n
        rows.append({"question": f"{names[n]} packs {a} boxes with {b} apples each and keeps {c} apples. How many apples are there?",
                     "answer": f"The boxes hold {a} * {b} = <<{a}*{b}={a * b}>>{a * b} apples.\n"
                               f"Together there are {a * b} + {c} = <<{a * b}+{c}={a * b + c}>>{a * b + c} apples.\n#### {a * b + c}"})
    write_rows("gsm8k/test.jsonl", rows)
    questions, answers = "", ""
    for n in range(8):
        rng = random.Random(f"longgenbench-gsm8k {n}")
        stamps = 20 + 3 * n
        question, steps = f"{names[n % 6]} has {stamps} stamps in an album.", f"At first there were {stamps} stamps."
        for week in range(1, 9):
            bought, given = rng.randint(5, 20), rng.randint(1, 5)
            question += f" In week {week} {bought} more are bought at the market and {given} are given to a friend."
            steps += f" After week {week} there are {stamps} + {bought} - {given} = {stamps + bought - given}."
            stamps += bought - given
        questions += f"Question_{n + 1}: \n{question} How many stamps are in the album after that?\n\n"
        answers += f"Answer_{n + 1}: \n{steps} The answer is {stamps}.\n\n"
    write("longgenbench-gsm8k/LongGenBench_prompt.txt", (questions + answers).rstrip("\n"))


def competition_math():
    """Problems in the words of competitions, from easy to middling, with answers in LaTeX or as integers."""
    def fraction(number):
        return str(number) if number.denominator == 1 else f"\\frac{{{number.numerator}}}{{{number.denominator}}}"

    def solved(rng, kind):
        a, b, c = rng.randint(2, 9), rng.randint(10, 19), rng.choice((2, 3, 5, 7))
        if kind == 0:
            return (f"Compute $\\frac{{{a}}}{{{b}}}+\\frac{{1}}{{{c}}}$.", fraction(Fraction(a, b) + Fraction(1, c)))
        if kind == 1:
            return f"Expand $(x+{a})(x+{b})$.", f"x^2+{a + b}x+{a * b}"
        if kind == 2:
            return f"Simplify $\\sqrt{{{c * a * a}}}$.", f"{a}\\sqrt{{{c}}}"
        if kind == 3:
            return (f"Find all real $x$ with $|x-{a}|<{b}$. Express the answer in interval notation.", f"({a - b},{a + b})")
        if kind == 4:
            return (f"The lines $y=x+{a}$ and $y={b}-x$ meet in a point. Find it as an ordered pair $(x,y)$.",
                    f"\\left({fraction(Fraction(b - a, 2))},{fraction(Fraction(a + b, 2))}\\right)")
        if kind == 5:
            return (f"A bag holds {a} red and {b} blue balls. Two are drawn without putting one back. What is the probability "
                    "that both are red?", fraction(Fraction(a * (a - 1), (a + b) * (a + b - 1))))
        if kind == 6:
            angle = Fraction(15 * a, 180)
            above = "\\pi" if angle.numerator == 1 else f"{angle.numerator}\\pi"
            return f"Convert ${15 * a}^\\circ$ to radians.", f"\\frac{{{above}}}{{{angle.denominator}}}"
        return f"{a} shelves hold {b} books each, and {c} books are lent. How many books are left?", str(a * b - c)

    def counted(rng, kind):
        a, b, n = rng.randint(3, 9), rng.randint(11, 19), rng.randint(100, 900)
        if kind == 0:
            return f"Find the remainder when ${a}^{{{b}}}$ is divided by ${n}$.", pow(a, b, n)
        if kind == 1:
            return (f"Find the number of positive integers up to ${n}$ that are multiples of ${a}$ or of ${b}$.",
                    sum(k % a == 0 or k % b == 0 for k in range(1, n + 1)))
        if kind == 2:
            found = Fraction(a * b, a + b)
            return (f"One pipe fills a tank in ${a}$ hours, another one in ${b}$ hours. Together they fill it in $\\frac{{m}}{{n}}$ "
                    "hours, where $m$ and $n$ are relatively prime positive integers. Find $m+n$.",
                    found.numerator + found.denominator)
        return (f"A sequence begins with $x_1={a}$, and $x_{{k+1}}$ is the remainder of $3x_k+{b}$ divided by $1000$. Find $x_{{8}}$.",
                eighth(a, b))

    def eighth(value, step):
        for _ in range(7):
            value = (3 * value + step) % 1000
        return value

    rows = []
    for n in range(24):
        problem, answer = solved(random.Random(f"math_500 {n}"), n % 8)
        subject = ("Prealgebra", "Algebra", "Algebra", "Intermediate Algebra", "Algebra", "Counting & Probability", "Precalculus",
                   "Prealgebra")[n % 8]
        rows.append({"problem": problem, "solution": f"The answer is $\\boxed{{{answer}}}$.", "answer": answer,
                     "subject": subject, "level": 1 + n // 8, "unique_id": f"kvarena/{n}.json"})
    write_rows("math_500/test.jsonl", rows)
    for year, names in ((24, ("ID", "Problem", "Answer")), (25, ("id", "problem", "answer")),
                        (26, ("problem_idx", "problem", "answer"))):
        write_rows(f"aime/aime{year}.jsonl", [dict(zip(names, (n + 1, *counted(random.Random(f"aime {year} {n}"), n % 4))))
                                              for n in range(24)])


def function(name, description, /, **parameters):
    return {"name": name, "description": description, "parameters": {
        "type": "dict", "properties": {k: {"type": t, "description": f"The {k}."} for k, t in parameters.items()},
        "required": list(parameters)}}


def bfcl():
    area = function("geometry.rectangle_area", "Area of a rectangle.", width="integer", height="integer")
    route = function("map.route", "Shortest route between two towns.", start="string", goal="string")
    tide = function("harbor.tide", "Time of high water.", town="string", day="string")
    names = [town.name for town in towns(random.Random("bfcl"), 4)]
    user = lambda text: [[{"role": "user", "content": text}]]
    call = lambda name, **values: {name: {k: [v] for k, v in values.items()}}
    sets = {
        "simple_python": [], "multiple": [], "parallel": [], "parallel_multiple": [], "irrelevance": []}
    answers = {name: [] for name in sets}
    for n in range(3):
        w, h = 3 + n, 8 + n
        a, b = names[n], names[n + 1]
        go = call("map.route", start=a, goal=b)
        sets["simple_python"].append((user(f"What is the area of a rectangle of {w} by {h}?"), [area]))
        answers["simple_python"].append([call("geometry.rectangle_area", width=w, height=h)])
        sets["multiple"].append((user(f"How do I get from {a} to {b}?"), [area, route, tide]))
        answers["multiple"].append([go])
        sets["parallel"].append((user(f"How do I get from {a} to {b}, and how back?"), [route]))
        answers["parallel"].append([go, call("map.route", start=b, goal=a)])
        sets["parallel_multiple"].append((user(f"How do I get from {a} to {b}? When is high water in {b} on Monday?"),
                                          [area, route, tide]))
        answers["parallel_multiple"].append([go, call("harbor.tide", town=b, day="Monday")])
        sets["irrelevance"].append((user(f"Who is the mayor of {a}?"), [area]))
    told = {"role": "system", "content": "You help travellers."}
    for name in list(sets):
        live = "live_" + name.removesuffix("_python")
        sets[live] = [([[told, *q[0]]], f) for q, f in sets[name]]
        answers[live] = answers[name]
    sets["live_relevance"], answers["live_relevance"] = sets["live_multiple"], []
    for name, rows in sets.items():
        ids = [f"{name}_{n}" + (f"-{n}-0" if name.startswith("live") else "") for n in range(len(rows))]
        write_rows(f"bfcl/BFCL_v4_{name}.json",
                   [{"id": i, "question": q, "function": f} for i, (q, f) in zip(ids, rows)])
        if answers[name]:
            write_rows(f"bfcl/possible_answer/BFCL_v4_{name}.json",
                       [{"id": i, "ground_truth": g} for i, g in zip(ids, answers[name])])


DOMAINS = ["Hotels", "Flights", "Car-Rental", "Attraction", "Cross"]


def travel_functions():
    """A search and a detail function for each kind of place, with optional filters as the benchmark's have."""
    filters = {"sort_by": "Order of the results: price, rating or distance.", "currency": "Three letters, EUR by default.",
               "language": "Language of descriptions, English by default.", "page": "Page of the results, 1 by default.",
               "max_price": "Upper bound of the price of one night, trip or ticket.", "min_rating": "Lower bound of the rating."}
    functions = []
    for kind in ("Inns", "Ferries", "Coaches", "Museums", "Guides", "Boats"):
        functions.append({"name": f"Search_{kind}", "description": f"Search {kind.lower()} of a town by its identifier.",
                          "parameters": {"type": "object", "properties": {
                              "town_id": {"type": "string", "description": "Identifier of the town, from Find_Town."},
                              "guests": {"type": "number", "description": "Number of guests."},
                              **{name: {"type": "string", "description": text} for name, text in filters.items()}},
                              "required": ["town_id", "guests"]}})
        functions.append({"name": f"Get_{kind}_Details", "description": f"Everything that is known of one of the {kind.lower()}.",
                          "parameters": {"type": "object", "properties": {
                              "id": {"type": "string", "description": f"Identifier from Search_{kind}."}}, "required": ["id"]}})
    return [{"name": "Find_Town", "description": "Look a town up.", "parameters": {
        "type": "object", "properties": {"query": {"type": "string", "description": "Name of the town."}},
        "required": ["query"]}}] + functions


def complexfuncbench():
    rows = []
    for n in range(5):
        rng = random.Random(f"complexfuncbench {n}")
        town, guests, kind = towns(rng, 1)[0], n + 2, ["Inns", "Ferries", "Coaches", "Museums", "Guides"][n]
        found = [{"id": f"{kind[0].lower()}{rng.randrange(1000, 9999)}", "name": f"{person(rng)}'s", "price": price,
                  "rating": rng.randrange(30, 50) / 10, "notes": remark(rng, town.name)}
                 for price in rng.sample(range(20, 200), 12)]
        cheapest = min(found, key=lambda each: each["price"])
        calls = [("Find_Town", {"query": town.name}, {"town_id": f"t{rng.randrange(10000)}", "about": town.text(rng, 4)})]
        calls.append((f"Search_{kind}", {"town_id": calls[0][2]["town_id"], "guests": guests}, found))
        calls.append((f"Get_{kind}_Details", {"id": cheapest["id"]}, {**cheapest, "open": town.month, "guests": guests}))
        turns = [{"role": "user", "content": f"Search the {kind.lower()} for {guests} people in {town.name} and tell me in "
                                             "which month the cheapest of them is open."}]
        for name, arguments, data in calls:
            turns += [{"role": "assistant", "function_call": [{"name": name, "arguments": arguments}]},
                      {"role": "observation", "content": [{"status": True, "data": data}]}]
        turns.append({"role": "assistant", "content": f"{cheapest['name']} is open in {town.month}."})
        rows.append({"id": f"{DOMAINS[n]}-{n}", "conversations": turns, "functions": travel_functions()})
    write_rows("complexfuncbench/ComplexFuncBench.jsonl", rows)


def longgenbench():
    rooms = ["a library", "a music room", "a bakery", "a gym", "a workshop", "a school", "a clinic", "a theatre"]
    for name, kind, number in (("short", "Floor", 12), ("long", "Day", 30)):
        rows = []
        for n in range(3):
            rng = random.Random(f"longgenbench {name} {n}")
            town, *near = towns(rng, 5)
            around = "\n".join(f"  - {other.text(rng, 12)}" for other in near)
            prefix = f"#*# {kind} 1:"
            once = dict(zip(map(str, sorted(rng.sample(range(2, number), 5))), rng.sample(rooms, 5)))
            places = "\n".join(f"  - {kind} {at} has {room}." for at, room in once.items())
            prompt = (f"Describe {kind.lower()}s 1 to {number} of a house in {town.name}.\n1) Single {kind.lower()}s:\n{places}\n"
                      f"2) {kind}s 4 to 5 have a garden.\n3) Every third {kind.lower()} has a stair, from {kind} 3.\n"
                      f"4) What is known of the place: {town.text(rng, 9)}\n5) Of the places around it:\n{around}\nWrite each entry by itself, with at least 100 words, "
                      f"and put '#*#' before it (e.g. #*# {kind} 2: {remark(rng, town.name)}). End with *** finished.\n{prefix}")
            rows.append({"prompt": prompt, "checks_once": once, "checks_range": {"4": "a garden", "5": "a garden"},
                         "checks_periodic": {str(at): "a stair" for at in range(3, number + 1, 3)}, "type": kind,
                         "prefix": prefix, "number": number})
        write(f"longgenbench/Dataset_{name}.json", json.dumps(rows, indent=1) + "\n")


def pisanitizer():
    wrong = {"passage_retrieval_en": "Paragraph 99", "lcc": "return None", "gov_report": "Nothing happened.",
             "multi_news": "Nothing happened."}
    for task in ("qasper", "hotpotqa", "gov_report", "multi_news", "passage_retrieval_en", "lcc"):
        write(f"pisanitizer/LongBench_incorrect_answer/{task}.json", json.dumps(
            [{"input": r["input"], "context": r["context"], "answers": r["answers"],
              "incorrect_answer": wrong.get(task, "Nobody Inparticular")} for r in make_longbench.rows(task)],
            ensure_ascii=False) + "\n")


SHELL = """You work in a shell, one command a turn. Answer with a THOUGHT and one command in a block of three back-ticks.

# Rules
{}

# How to end
When the change is made and the tests pass, print the difference and stop. Do not change the tests.
"""


def agent_session(name, steps):
    """Turns of an agent that mends a bug in generated files: [(what it is told, what it answers)]."""
    rng = random.Random(f"session {name}")
    noun, fields = rng.choice(source_files.NOUNS), rng.sample(source_files.FIELDS, 6)
    rules = "\n".join(f"{k + 1}. {remark(rng, 'the repository')}" for k in range(12))
    files = "\n".join(f"stores/{each}_store.py  {rng.randrange(90, 4000)} bytes, changed by {person(rng)}"
                      for each in source_files.NOUNS)
    field, *others = fields
    issue = (f"{noun.capitalize()}Store.mean_{field}() is wrong for an empty store. It should be 0, and total_{field}() should "
             f"stay as it is. Seen by {person(rng)}.\n{files}\n\n{source_files.store('python', noun, others)}")
    turns = [(SHELL.format(rules) + "\n# Issue\n" + issue,
              f"THOUGHT: I look at the file first.\n```\ncat stores/{noun}_store.py\n```")]
    for step in range(1, steps):
        each = fields[step % 6]
        output = (f"<returncode>{step % 2}</returncode>\n<output>\n" +
                  source_files.store("python", rng.choice(source_files.NOUNS), rng.sample(source_files.FIELDS, 3)) +
                  f"test_mean_{each}: {'failed' if step % 2 else 'passed'}\n</output>")
        turns.append((output, f"THOUGHT: test_mean_{each} {'fails' if step % 2 else 'passes'}, so I run the next one.\n"
                              f"```\npython3 -m pytest -k mean_{fields[(step + 1) % 6]}\n```"))
    return turns


def azure_trace(name, prompt, answer, ending):
    """64 arrivals, some close together and some far apart, with lengths about those of two means."""
    rng = random.Random(f"azure {name}")
    lines, seconds = ["TIMESTAMP,ContextTokens,GeneratedTokens"], 18 * 3600.0
    for _ in range(64):
        hour, rest = divmod(seconds, 3600)
        lines.append(f"2023-11-16 {int(hour):02}:{int(rest // 60):02}:{rest % 60:010.7f},"
                     f"{1 + int(rng.expovariate(1 / prompt))},{1 + int(rng.expovariate(1 / answer))}")
        seconds += rng.expovariate(1 / rng.choice((0.2, 2, 10)))
    return "".join(line + ending for line in lines)


def traces():
    rows = []
    for session in range(3):
        history = [{"role": "system", "content": "You are a careful programmer."}]
        for turn, (told, answer) in enumerate(agent_session(f"agentic {session}", 5)):
            history.append({"role": "tool" if turn else "user", "content": told})
            rows.append({"session_id": f"kvarena__s{session}", "model": "none", "input": list(history),
                         "output_length": 40 + turn, "pre_gap": 0.5 * turn})
            history.append({"role": "assistant", "content": answer})
    write_rows("lmcache-agentic-traces/traces.jsonl", rows)
    write_rows("lmcache-agent-trace/miniswe/session.jsonl",
               [{"timestamp": 1000000 + 500000 * n, "input": told, "output": answer, "session_id": "session"}
                for n, (told, answer) in enumerate(agent_session("miniswe", 6))])
    write("azure-llm-2023/AzureLLMInferenceTrace_conv.csv", azure_trace("conv", 900, 200, "\n"))
    write("azure-llm-2023/AzureLLMInferenceTrace_code.csv", azure_trace("code", 2000, 20, "\r\n"))
    write_rows("mooncake/conversation_trace.jsonl",
               [{"timestamp": 3000 * n, "input_length": 1300 + 512 * n, "output_length": 30,
                 "hash_ids": [*range(2 + n), 100 + n]} for n in range(3)])
    write_rows("weka/traces.jsonl", [weka_trace(n) for n in range(2)])


def weka_trace(number):
    """Five turns that grow, one of which starts another agent."""
    requests, blocks = [], 20
    for turn in range(5):
        requests.append({"t": 10.0 * turn, "type": "s", "in": 64 * blocks + 9, "out": 40 + turn,
                         "hash_ids": list(range(1, blocks + 1)), "api_time": 4.0, "think_time": 0.25 * turn})
        blocks += 2 + number
    requests.insert(3, {"t": 21.0, "type": "subagent", "requests": requests[:1]})
    return {"id": f"trace_{number:04}", "block_size": 64, "hash_id_scope": "local", "requests": requests}


def pg19():
    rng = random.Random("pg19")
    for n in range(3):
        paragraphs = [town.text(rng, 9) for town in towns(rng, 16)]
        write(f"pg19/test/{n}.txt", f"CHAPTER {n + 1}\n\n" + "\n\n".join(paragraphs) + "\n")


def swe_bench():
    """Rows of the oracle form: the prompt shows the issue and the files, the answer is a patch of one of them."""
    rows = []
    for n in range(3):
        rng = random.Random(f"swe-bench {n}")
        nouns, fields = rng.sample(source_files.NOUNS, 2), rng.sample(source_files.FIELDS, 8)
        files = {f"stores/{noun}_store.py": source_files.store("python", noun, fields) for noun in nouns}
        (path, code), field = next(iter(files.items())), fields[5]
        lines = code.split("\n")
        at = next(k for k, line in enumerate(lines) if line == f"        return self.total_{field}() / max(1, len(self.{nouns[0]}s))")
        mended = lines[at].replace("max(1, ", "(").replace("))", ")) if self.") + f"{nouns[0]}s else 0.0"
        patch = (f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -{at},3 +{at},3 @@\n {lines[at - 1]}\n"
                 f"-{lines[at]}\n+{mended}\n {lines[at + 1]}\n")
        issue = f"mean_{field} of {path} hides an empty store: it must return 0.0 there, and divide by the length otherwise."
        shown = "\n".join(f"[start of {name}]\n{text}[end of {name}]" for name, text in files.items())
        text = (f"You will be provided with a partial code base and an issue statement explaining a problem to resolve.\n<issue>\n"
                f"{issue}\n</issue>\n<code>\n{shown}\n</code>\nRespond below with one git diff between <patch> and </patch>.")
        rows.append({"repo": "kvarena/example", "instance_id": f"kvarena__example-{n}", "base_commit": "0" * 40, "patch": patch,
                     "test_patch": "", "problem_statement": issue, "text": text, "hints_text": "",
                     "created_at": "2025-01-01T00:00:00Z", "version": "1.0", "FAIL_TO_PASS": "[]", "PASS_TO_PASS": "[]",
                     "environment_setup_commit": "0" * 40})
    write_rows("swe-bench-lite/test.jsonl", rows)


def main(folder):
    global FOLDER
    FOLDER = folder
    for make in (longbench_v2, longwriter, graphwalks, mrcr, babilong, gsm8k, competition_math, bfcl, complexfuncbench, longgenbench,
                 pisanitizer, traces, pg19, swe_bench):
        make()
