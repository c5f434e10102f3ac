"""Files in the forms of InfiniteBench, SCBench, LooGLE and sets of multiple choice: 20 rows a task, or as many questions
about few contexts."""

import json
import random
import string
import uuid

import source_files
from invented import FIRST, TRADES, people, remark, towns, zh_towns
from make_others import write, write_rows

HAY = "The lamp is lit. The door is shut. The kettle hums. Nothing else moves."
ROWS = 20
CONTEXTS, TURNS = 6, 5


def hidden(sentence, rng):
    lines = [HAY] * 150
    lines.insert(rng.randrange(151), sentence)
    return "\n".join(lines)


def key_values(rng):
    """A JSON object of identifiers as text, and its pairs."""
    pairs = [(str(uuid.UUID(int=rng.getrandbits(128))), str(uuid.UUID(int=rng.getrandbits(128)))) for _ in range(90)]
    return "JSON data:\n" + json.dumps(dict(pairs)), pairs


def asks_value(key):
    return f'\nKey: "{key}"\nThe value associated with the specified key is: '


def novel(rng):
    """A text about towns, and five questions about it with their answers and three wrong ones."""
    places = towns(rng, 8)
    asked = []
    for town in rng.sample(places, TURNS):
        question, answers = rng.choice([
            (f"Who founded the {town.trade} of {town.name}?", [town.founder] + [other.founder for other in places if other is not town]),
            (f"Who leads the school of {town.name}?", [town.teacher] + [other.teacher for other in places if other is not town])])
        options = answers[:4]
        rng.shuffle(options)
        asked.append({"input": question, "answer": answers[0], "options": options})
    return "\n\n".join(place.text(rng, 9) for place in places), asked, places


def zh_novel(rng):
    places = zh_towns(rng, 16)
    asked = [{"input": f"{town.name}的学校是谁创办的？", "answer": town.founder} for town in rng.sample(places, TURNS)]
    return "\n".join(place.text(rng, 8) for place in places), asked


def summary(places):
    return "\n".join(f"In {town.name} the {town.trade} employs {town.workers} people." for town in places[:4])


def passkey(rng):
    key = str(rng.randrange(10000, 99999))
    return {"context": hidden(f"The pass key is {key}. Remember it. {key} is the pass key.", rng), "input": "What is the pass key?",
            "answer": key}


def number_string(rng):
    digits = "".join(rng.choices(string.digits, k=10))
    return {"context": hidden(f"The sequence of digits is {digits}. Remember it. {digits} is the sequence of digits.", rng),
            "input": "What is the sequence of digits?", "answer": digits}


def kv_retrieval(rng):
    text, pairs = key_values(rng)
    key, value = rng.choice(pairs)
    return {"context": text, "input": asks_value(key), "answer": value}


def math_find(rng):
    numbers = [rng.randrange(-99999, 100000) for _ in range(800)]
    word, pick = rng.choice([("largest", max), ("smallest", min)])
    return {"context": str(numbers), "answer": pick(numbers),
            "input": f"You should answer with only one number, no other words. The {word} number of the list is: "}


def code_run(rng):
    adds = [rng.randrange(-6, 7) for _ in range(150)]
    code = [f"def func_0(x):\n    return x + {adds[0]}"]
    code += [f"def func_{k}(x):\n    return func_{k - 1}(x) + {adds[k]}" for k in range(1, 150)]
    x, k = rng.randrange(-9, 10), rng.randrange(3, 12)
    return {"context": "\n\n".join(code), "answer": x + sum(adds[:k + 1]),
            "input": f"Please give me the exact number of the return value of func_{k}({x}). Be concise."}


def functions(rng, language):
    """Functions by name, each with what describes it."""
    made = {}
    for noun in rng.sample(source_files.NOUNS, 6):
        for field in rng.sample(source_files.FIELDS, 9):
            kind = rng.randrange(3)
            made[source_files.function_name(language, kind, field)] = (source_files.function(language, kind, noun, field),
                                                                       source_files.purpose(kind, noun, field))
    return made


def code_debug(rng):
    """Functions of which one takes the length of nothing."""
    made = functions(rng, "python")
    options = rng.sample(sorted(made), 4)
    answer = rng.choice(options)
    code = [text.replace("):\n", "):\n    size = len(None)\n", 1) if name == answer else text for name, (text, _) in made.items()]
    return {"context": "\n\n".join(code), "input": "Which function has the error?", "answer": [answer], "options": options}


def math_calc(rng):
    terms = [rng.randrange(1, 100) for _ in range(1200)]
    signs = [1] + [rng.choice((1, -1)) for _ in terms[1:]]
    values = [sum(sign * term for sign, term in zip(signs[:k], terms)) for k in range(1, len(terms) + 1)]
    text = str(terms[0]) + "".join(f" {'+' if sign > 0 else '-'} {term}" for sign, term in zip(signs[1:], terms[1:]))
    return {"context": text, "input": "", "answer": values}


def longbook_sum_eng(rng):
    text, _, places = novel(rng)
    return {"context": text, "input": "", "answer": [summary(places)]}


def longbook_qa_eng(rng):
    text, asked, _ = novel(rng)
    return {"context": text, "input": asked[0]["input"], "answer": [asked[0]["answer"]]}


def longbook_choice_eng(rng):
    text, asked, _ = novel(rng)
    return {"context": text, **asked[0], "answer": [asked[0]["answer"]]}


def longbook_qa_chn(rng):
    text, asked = zh_novel(rng)
    return {"context": text, "input": asked[0]["input"], "answer": [asked[0]["answer"]]}


def longdialogue_qa_eng(rng):
    """People who speak of their own trade in every line, one of them without a name once."""
    speakers = list(zip(rng.sample(FIRST, 5), rng.sample(TRADES, 5)))
    lines = [(name, f"At the {trade} we have no news. {remark(rng, 'this town')}") for name, trade in rng.choices(speakers, k=60)]
    masked = rng.randrange(20, 60)
    answer = lines[masked][0].upper()
    return {"context": "\n\n".join(f"{'$$MASK$$' if k == masked else name.upper()}\n{text}" for k, (name, text) in enumerate(lines)),
            "input": "Which character is $$MASK$$?", "answer": [answer]}


def infinitebench():
    for make in (passkey, number_string, kv_retrieval, math_find, code_run, code_debug, math_calc, longbook_sum_eng,
                 longbook_qa_eng, longbook_choice_eng, longbook_qa_chn, longdialogue_qa_eng):
        task = make.__name__
        write_rows(f"infinitebench/{task}.jsonl",
                   [{"id": n, "options": [], **make(random.Random(f"infinitebench {task} {n}"))} for n in range(ROWS)])


def kv(rng, n):
    text, pairs = key_values(rng)
    return {"context": text, "multi_turns": [{"input": asks_value(key), "answer": value} for key, value in rng.sample(pairs, TURNS)]}


def prefix_suffix(rng, n):
    words = ["".join(rng.choices(string.ascii_lowercase, k=24)) for _ in range(240)]
    return {"context": "\n".join(words), "multi_turns": [
        {"input": f"Please find the string that starts with {word[:6]} and ends with {word[-6:]}.", "answer": word}
        for word in rng.sample(words, TURNS)]}


def vt(rng, n):
    """Chains of assignments among other lines; who has a value is told by following them."""
    lines, turns = [HAY] * 150, []
    values = rng.sample(range(10000, 99999), TURNS)
    names = ["".join(rng.choices(string.ascii_uppercase, k=5)) for _ in range(4 * TURNS)]
    for k, value in enumerate(values):
        chain = names[4 * k:4 * k + 4]
        places = sorted(rng.sample(range(len(lines)), 4), reverse=True)
        said = [f"VAR {chain[0]} = {value}"] + [f"VAR {name} = VAR {before}" for before, name in zip(chain, chain[1:])]
        for place, line in zip(places, reversed(said)):
            lines.insert(place, line)
        turns.append({"input": f"Question: Find all variables that are assigned the value {value} in the text above.",
                      "answer": chain})
    return {"context": "\n".join(lines), "multi_turns": turns}


def repoqa(rng, n):
    """Functions in one of six languages, and what describes five of them."""
    language = source_files.LANGUAGES[n % len(source_files.LANGUAGES)]
    made = functions(rng, language)
    turns = [{"input": f"Function Description: {about}", "answer": code, "name": name}
             for name, (code, about) in rng.sample(sorted(made.items()), TURNS)]
    return {"context": "\n\n".join(code for code, _ in made.values()), "multi_turns": turns, "lang": language,
            "repo": f"kvarena/{language}"}


def qa_eng(rng, n):
    text, asked, _ = novel(rng)
    return {"context": text, "multi_turns": [{"input": each["input"], "answer": each["answer"]} for each in asked]}


def qa_chn(rng, n):
    text, asked = zh_novel(rng)
    return {"context": text, "multi_turns": asked}


def choice_eng(rng, n):
    text, asked, _ = novel(rng)
    return {"context": text, "multi_turns": asked}


def many_shot(rng, n):
    """Remarks with the letter of the town that they are of."""
    places = [town.name for town in towns(rng, 4)]
    shots = [(remark(rng, places[letter]), letter) for letter in rng.choices(range(4), k=70)]
    form = "Which town is meant?\nOptions: {}\nText: {}\nAnswer: {}"
    options = " ".join(f"({'ABCD'[k]}) {place}" for k, place in enumerate(places))
    asked = [(remark(rng, places[letter]), letter) for letter in rng.choices(range(4), k=TURNS)]
    return {"context": "\n\n".join(form.format(options, text, "ABCD"[letter]) for text, letter in shots), "task": "towns",
            "multi_turns": [{"input": form.format(options, text, "").rstrip(), "answer": "ABCD"[letter]} for text, letter in asked]}


def reports(rng):
    """Several reports one after the other, a turn for the summary of each."""
    parts, turns = [], []
    for k in range(TURNS):
        places = towns(rng, 4)
        parts.append(f"Report {k + 1}\n\n" + "\n\n".join(place.text(rng, 4) for place in places))
        turns.append({"input": f"Please summarize report {k + 1}.", "answer": summary(places)})
    return parts, turns


def summary_turns(rng, n):
    parts, turns = reports(rng)
    return {"context": "\n\n".join(parts), "multi_turns": turns}


def summary_with_needles(rng, n):
    parts, turns = reports(rng)
    for k in range(TURNS):
        turns[k]["task"] = "scbench_summary"
        if k % 2:
            key = str(rng.randrange(10000, 99999))
            parts[k] += f"\n\nThe pass key of report {k + 1} is {key}. Remember it."
            turns[k] = {"input": f"What is the pass key of report {k + 1}?", "answer": key, "task": "scbench_passkey"}
    return {"context": "\n\n".join(parts), "multi_turns": turns}


def mf(rng, n):
    numbers = rng.sample(range(1, 100000), 800)
    middle = sorted(numbers[:-1])[399]
    asked = [("largest number", max(numbers)), ("smallest number", min(numbers)), ("second largest number", sorted(numbers)[-2]),
             ("second smallest number", sorted(numbers)[1]), ("median of all numbers but the last", middle)]
    return {"context": numbers, "multi_turns": [
        {"input": f"You should answer with only one number, no other words. The {what} of the list is: ", "answer": number}
        for what, number in asked]}


def repoqa_and_kv(rng, n):
    row, (text, pairs) = repoqa(rng, n), key_values(rng)
    turns = [{**turn, "task": "scbench_repoqa"} for turn in row["multi_turns"]]
    for k in (1, 3):
        key, value = pairs[40 + k]
        turns[k] = {"input": asks_value(key), "answer": value, "name": None, "task": "scbench_kv"}
    return {**row, "context": row["context"] + "\n\n" + text, "multi_turns": turns}


def scbench():
    for make in (kv, prefix_suffix, vt, repoqa, qa_eng, qa_chn, choice_eng, many_shot, summary_turns, mf, summary_with_needles,
                 repoqa_and_kv):
        task = make.__name__.removesuffix("_turns")
        write_rows(f"scbench/scbench_{task}.jsonl",
                   [{"id": n, **make(random.Random(f"scbench {task} {n}"), n)} for n in range(CONTEXTS)])


def shortdep_qa(rng):
    text, asked, _ = novel(rng)
    return text, [{"Q": each["input"], "A": each["answer"], "S": []} for each in asked]


def longdep_qa(rng):
    """Questions over two towns."""
    text, _, places = novel(rng)
    return text, [{"Q": f"Which library holds more books, that of {a.name} or that of {b.name}?",
                   "A": f"That of {max(a, b, key=lambda town: town.books).name}.", "S": [], "type": "comprehension_and_reasoning"}
                  for a, b in zip(places, places[1:TURNS + 1])]


def shortdep_cloze(rng):
    text, _, places = novel(rng)
    return text, [{"Q": f"The {town.trade} of <mask-0> was founded by <mask-1> in {town.founded}.", "S": [],
                   "A": {"<mask-0>": town.name, "<mask-1>": town.founder}} for town in places[:TURNS]]


def longdep_summarization(rng):
    text, _, places = novel(rng)
    return text, summary(places)


def loogle():
    for make, count in ((shortdep_qa, CONTEXTS), (longdep_qa, CONTEXTS), (shortdep_cloze, CONTEXTS), (longdep_summarization, ROWS)):
        rows = []
        for n in range(count):
            text, asked = make(random.Random(f"loogle {make.__name__} {n}"))
            pairs, output = ("none", asked) if isinstance(asked, str) else (asked, "none")
            rows.append({"input": text, "title": f"kvarena-{n}", "qa_pairs": pairs, "output": output})
        write_rows(f"loogle/{make.__name__}.jsonl", rows)


def quality():
    rows = []
    for n in range(CONTEXTS):
        text, asked, _ = novel(random.Random(f"quality {n}"))
        rows.append({"article_id": str(n), "set_unique_id": f"{n}_kvarena", "article": text, "questions": [
            {"question": each["input"], "options": each["options"], "gold_label": 1 + each["options"].index(each["answer"]),
             "difficult": k % 2} for k, each in enumerate(asked)]})
    write_rows("quality/QuALITY.v1.0.1.htmlstripped.dev", rows)


def longhealth():
    """Letters about an invented patient: who wrote, when, what was measured."""
    rows = []
    for n in range(CONTEXTS):
        rng = random.Random(f"longhealth {n}")
        patient, *doctors = people(rng, TURNS + 1)
        texts, questions = {}, []
        for k, doctor in enumerate(doctors):
            place, rate, weight = towns(rng, 1)[0], rng.randrange(48, 99), rng.randrange(52, 98)
            texts[f"text_{k}"] = (f"{place.name} hospital, {place.month} {2001 + k}\n\nDear colleague,\n\nwe report on {patient}. "
                                  f"{' '.join(remark(rng, place.name) for _ in range(9))} At the visit the pulse was {rate} a minute "
                                  f"and the weight {weight} kg.\n\n{doctor}")
            asked, answer, others = [(f"What was the pulse in {2001 + k}?", rate, [rate + 3, rate - 4, rate + 11, rate - 9]),
                                     (f"What was the weight in {2001 + k}?", weight, [weight + 2, weight - 5, weight + 8, weight - 7])][k % 2]
            options = [str(answer), *map(str, others)]
            rng.shuffle(options)
            questions.append({"No": k, "question": asked, **{f"answer_{letter}": option for letter, option in zip("abcde", options)},
                              "correct": str(answer), "answer_location": {f"text_{k}": {"start": [0.5], "end": [0.9]}}})
        rows.append({"name": patient, "texts": texts, "questions": questions})
    write_rows("longhealth/benchmark_v5.jsonl", rows)


def locomo():
    """Two friends talk on eight days: who visited which town, ate what there, gave what to whom."""
    rows = []
    for n in range(CONTEXTS):
        rng = random.Random(f"locomo {n}")
        (a, b), places = rng.sample(FIRST, 2), towns(rng, 8)
        talk, asked = {"speaker_a": a, "speaker_b": b}, []
        for k, town in enumerate(places, 1):
            date, speaker, other = f"{rng.randrange(1, 13)}:{rng.randrange(10, 60)} pm on {3 * k} {town.month}, {2020 + k}", *rng.sample([a, b], 2)
            said = [f"Hi {other}! On the weekend I was in {town.name}, where they have {town.dish}.", "How was it?",
                    *(remark(rng, town.name) for _ in range(6)), f"And I bought a picture of the {town.trade}.", "Lovely!"]
            talk[f"session_{k}_date_time"] = date
            talk[f"session_{k}"] = [{"speaker": (speaker, other)[i % 2], "dia_id": f"D{k}:{i + 1}", "text": text}
                                    for i, text in enumerate(said)]
            talk[f"session_{k}"][-2]["blip_caption"] = f"a photo of a picture of a {town.trade}"
            asked += [(4, f"What did {speaker} eat in {town.name}?", {"answer": town.dish}),
                      (2, f"When did {speaker} speak of {town.name}?", {"answer": 2020 + k if k % 4 == 0 else f"{town.month} {2020 + k}"}),
                      (3, f"Would {speaker} go to {town.name} again?", {"answer": "Likely yes; pictures were bought there"}),
                      (5, f"What did {other} eat in {town.name}?", {"adversarial_answer": town.dish})]
        asked += [(1, f"Which towns were talked of on days {k} and {k + 1}?", {"answer": f"{places[k - 1].name}, {places[k].name}"})
                  for k in range(1, TURNS)]
        rows.append({"sample_id": f"kvarena-{n}", "conversation": talk, "qa": [
            {"question": question, **answer, "evidence": [], "category": category} for category, question, answer in asked]})
    write("locomo/locomo10.json", json.dumps(rows))


def gpqa():
    """Questions of physics with numbers in them; options as the official rows have them, in columns."""
    rows = []
    for n in range(24):
        rng = random.Random(f"gpqa {n}")
        a, b = rng.randrange(3, 40), rng.randrange(2, 9)
        question, answer, unit = [(f"A stone falls for {b} s from rest without air. How fast is it (g = 10 m/s^2)?", 10 * b, "m/s"),
                                  (f"A current of {b} A flows through {a} ohm. What is the voltage?", a * b, "V"),
                                  (f"{a} mol of an ideal gas are halved once. How many mol are left?", a / 2, "mol [of gas]"),
                                  (f"A mass of {a} kg is pushed with {a * b} N. What is its  acceleration?", b, "m/s^2")][n % 4]
        wrong = rng.sample([value for value in (answer + 1, answer * 2, answer + 7, answer / 4, answer * 10) if value != answer], 3)
        rows.append({"Question": question, "Correct Answer": f"{answer:g} {unit}\n",
                     **{f"Incorrect Answer {k + 1}": f" {value:g} {unit}" for k, value in enumerate(wrong)}})
    for name in ("diamond", "main", "extended"):
        write_rows(f"gpqa/gpqa_{name}.jsonl", rows)


def main():
    quality()
    longhealth()
    gpqa()
    infinitebench()
    scbench()
    loogle()
    locomo()
