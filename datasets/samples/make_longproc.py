"""Files in the form of LongProc's rows: procedures whose outputs are as long as those of its levels.

Prompts are the project's own. Searches for countdowns and trips are written down as LongProc's loader writes them, because
its scorer reads their lines.
"""

import functools
import html
import itertools
import json
import random

from invented import DISHES, ENDS, FIRST, RIVERS, STARTS, TRADES, person, remark
from make_others import write_rows

ROWS = 20
LEVELS = {"0.5k": 1500, "2k": 6000, "8k": 24000}  # characters of a reference output, about
PLACES = [f"{side}{start}{end}" for side in ("", "Upper ", "Lower ", "New ", "Old ") for start in STARTS for end in ENDS]


def html_to_tsv(rng, size):
    """Towns on a page, of which all or those with many pupils are asked for."""
    count = size // 38
    cards, rows, least = [], ["name\tdish\tfounder\tpupils"], rng.choice([0, 0, 300])
    for name in rng.sample(PLACES, count):
        dish, founder, pupils = rng.choice(DISHES + ["bread & cheese"]), person(rng), rng.randrange(60, 700)
        said = "" if rng.random() < 0.1 else dish
        cards.append(f'<div class="town"><h3><a href="/towns/{len(cards)}">{name}</a></h3>\n<p>{remark(rng, name)}</p>\n<ul>'
                     f'<li>Dish: <b>{html.escape(said)}</b></li><li>Founded by {founder}</li><li>Pupils: {pupils}</li></ul></div>')
        if pupils > least:
            rows.append(f"{name}\t{said or 'N/A'}\t{founder}\t{pupils}")
    page = f"<html><head><title>Towns</title></head>\n<body><nav><a href='/'>Home</a> | {' | '.join(RIVERS)}</nav>\n" + "\n".join(cards)
    which = f"the towns with more than {least} pupils" if least else "all towns"
    return (f"[TASK]\nCopy facts from a web page into a table.\n\n[INPUT WEBPAGE]\n```html\n{page}\n</body></html>\n```\n\n"
            f"[TARGET INFORMATION]\nOf {which}, in the order of the page: the name, the dish, the founder, and how many pupils there "
            f"are.\n\n[OUTPUT FORMAT]\nA line for each town, with tabs between its properties and N/A for one that is blank, and "
            f"nothing else:\n```tsv\n{rows[0]}\n...\n```", "\n".join(rows), {})


STEPS = [
    ("add {k} to every element of a", "for (int i = 0; i < n; i++) a[i] += {k};", lambda a, total, k: ([x + k for x in a], total)),
    ("reverse the order of a", "reverse(a, a + n);", lambda a, total, k: (a[::-1], total)),
    ("sort a in ascending order", "sort(a, a + n);", lambda a, total, k: (sorted(a), total)),
    ("for each element of a that is larger than {k}, add it to total", "for (int i = 0; i < n; i++) if (a[i] > {k}) total += a[i];",
     lambda a, total, k: (a, total + sum(x for x in a if x > k))),
    ("add the element of a at {k} modulo n to total", "total += a[{k} % n];", lambda a, total, k: (a, total + a[k % len(a)])),
    ("add {k} times the largest element of a to total", "total += {k} * *max_element(a, a + n);",
     lambda a, total, k: (a, total + k * max(a))),
    ("if total is larger than 9999, set it to its remainder by {m}", "if (total > 9999) total %= {m};",
     lambda a, total, k: (a, total % (90 + k) if total > 9999 else total))]


def pseudo_to_code(rng, size):
    """A program of steps on an array, line by line, and tests that the steps' meaning makes."""
    chosen = [(rng.choice(STEPS), rng.randrange(2, 40)) for _ in range(size // 50)]
    def lines(which, before, after):
        return before + ["    " + step[which].format(k=k, m=90 + k) for step, k in chosen] + after
    told = lines(0, ["long long integer a array of size 100", "define the main function", "    n = integer, total = long long integer = 0",
                     "    read n", "    read n values into array a"], ["    print total", "    return 0", "end of the block"])
    code = lines(1, ["long long a[100];", "int main() {", "    int n; long long total = 0;", "    cin >> n;",
                     "    for (int i = 0; i < n; i++) cin >> a[i];"], ["    cout << total << endl;", "    return 0;", "}"])
    tests = []
    for _ in range(12):
        given = [rng.randrange(1, 50) for _ in range(rng.randrange(1, 9))]
        a, total = given, 0
        for (_, _, act), k in chosen:
            a, total = act(a, total, k)
        tests.append([[str(len(given)), " ".join(map(str, given))], [str(total)]])
    return ("Write each line of pseudocode as a line of C++, between ```cpp and ```. The headers of the standard library are included and "
            "its namespace is used.\n\n[PSEUDOCODE]:\n" + "\n".join(told) + "\n\n[CODE]:", "\n".join(code), {"testcases": tests})


def ways(rng, count, others):
    """Cities on the one way from the first to the last, and others that lead to it."""
    names = rng.sample(PLACES, count + others)
    onward = dict(zip(names[:count], names[1:count]))
    onward.update((name, rng.choice(names[:count])) for name in names[count - 1:])
    taken = {name: rng.choice(["bus", "train", "plane", "ferry"]) for name in names}
    listed = rng.sample(names, len(names))
    route = "\n".join(f"From {name}, take a {taken[name]} to {onward[name]}." for name in names[:count - 1])
    return "\n".join(f"{name} has a {taken[name]} to {onward[name]}." for name in listed), names[0], names[count - 1], route


def path_traversal(rng, size):
    shown, first, last, solved = ways(random.Random("path"), 8, 4)
    cities, start, end, route = ways(rng, size // 50, max(size // 50, 90))
    return (f"From every city below one way leads on, to one other city. Go from city to city until the end is reached, and write "
            f"each step on a line between <Route> and </Route>, as here.\n\n[EXAMPLE]\n{shown}\n\nFrom {first} to {last}:\n<Route>\n"
            f"{solved}\n</Route>\n\n[PROBLEM]\n{cities}\n\nNow find the route from {start} to {end}, in the form of the example.",
            route, {})


ROOMS, THINGS = ["kitchen", "cellar", "hall", "attic"], ["cup", "lamp", "key", "atlas"]
PLACED = ["shelf", "table", "chest"]


def story(rng, steps):
    """People who carry things between two rooms; a question about what one of them believes, and each step's answer."""
    people, things, rooms = rng.sample(FIRST, 2), rng.sample(THINGS, 2), rng.sample(ROOMS, 2)
    at = {name: rng.choice(rooms) for name in people}
    on = {thing: f"{rng.choice(rooms)}'s {rng.choice(PLACED)}" for thing in things}
    who, what = rng.choice(people), rng.choice(things)
    lines = ["Step 0: " + "; ".join([f"{name} is in the {at[name]}" for name in people] + [f"the {x} is on the {on[x]}" for x in things]) + "."]
    answer, belief = [], None
    for step in range(steps):
        if step:
            name = rng.choice(people)
            near = [x for x in things if on[x].startswith(at[name])]
            said = []
            if not near or rng.random() < 0.5:
                at[name] = rooms[1 - rooms.index(at[name])]
                said.append(f"moves to the {at[name]}")
            if near and (not said or rng.random() < 0.3):
                moved = rng.choice(near)
                on[moved] = f"{at[name]}'s {rng.choice(PLACED)}"
                said.append(f"puts the {moved} on the {on[moved]}")
            lines.append(f"Step {step}: {name} {' and '.join(said)}.")
        sees = on[what].startswith(at[who])
        belief = on[what] if sees else belief
        answer.append(f"- Step {step}: {{{who} location: {at[who]}; {what} location: {on[what]}; {who} sees {what}: {sees}; "
                      f"{who}'s belief on {what}: {belief}}}")
    ends = f"the {belief}" if belief else "nowhere"
    return "\n".join(lines), f"Where does {who} believe the {what} is?", f"{who}'s belief on the {what}:\n" + "\n".join(answer) + f"\nFinal Answer: {ends}"


def tom_tracking(rng, size):
    shown = [story(random.Random(f"story {n}"), 12) for n in range(3)]
    told, asked, answer = story(rng, size // 150)
    examples = "\n\n".join(f"[STORY]\n{a}\n\n[QUESTION]\n{b}\n\n[YOUR ANSWER]\n{c}" for a, b, c in shown)
    return (f"People move between rooms and put things down. Who is in the room of a thing sees it, and believes it where it is; who "
            f"is not believes what was seen last, or None. Say after every step where the person and the thing are, whether the "
            f"person sees it and what the person believes, as in the examples.\n\n{examples}\n\n[STORY]\n{told}\n\n[QUESTION]\n{asked}"
            f"\n\n[YOUR ANSWER]", answer, {})


def search(numbers, target, level, log):
    """The equations that lead to the target, tried in the order of the numbers, or None."""
    for i, j in itertools.combinations(range(len(numbers)), 2):
        left = [x for k, x in enumerate(numbers) if k not in (i, j)]
        a, b = max(numbers[i], numbers[j]), min(numbers[i], numbers[j])
        if left:
            log.append(f"{' ' * level}|- Pick two numbers ({numbers[i]}, {numbers[j]}) (numbers left: {left}). Try possible operations.")
        deeper = level + bool(left)
        for sign, value in (("+", a + b), ("-", a - b), ("*", a * b), ("/", None if b == 0 else a / b if a % b else a // b)):
            whole = isinstance(value, int)
            shown = value if whole or value is None else f"{value:.1f}"
            step = f"{a} {sign} {b} = {shown}" if value is not None else f"{a} / {b} (invalid operation)"
            tried = f"{' ' * deeper}|- Try {step}. "
            if value is None:
                log.append(tried + "drop this branch.")
            elif not whole:
                log.append(f"{tried}{shown} is a decimal, drop this branch.")
            elif value >= 2000:
                log.append(f"{tried}{shown} exceeds the maximum intermediate result, drop this branch.")
            elif not left:
                log.append(tried + (f"Evaluate {shown} == {target}, target found!" if value == target
                                    else f"Evaluate {shown} != {target}, drop this branch."))
                if value == target:
                    return [step]
            else:
                rest = [shown, *left]
                log.append(f"{tried}Add {shown} to the number set. Current number set: {rest}, target: {target}" + options(rest))
                found = search(rest, target, deeper + 1, log)
                if found:
                    return [step, *found]
    return None


def options(numbers):
    if len(numbers) == 2:
        return ", just two numbers left."
    return f". Options for choosing two numbers: {list(itertools.combinations(numbers, 2))}."


def numbers_game(rng, low, high):
    """Numbers, a target, and a search whose text is of `low` to `high` characters."""
    while True:
        numbers, target = [rng.randrange(1, 50) for _ in range(4)], rng.randrange(10, 80)
        log = [f"Initial number set: {numbers}, target: {target}" + options(numbers)]
        found = search(numbers, target, 1, log)
        if found and low <= sum(map(len, log)) <= high:
            text = "\n".join(log)
            solution = "\n".join(found)
            return numbers, target, (
                f"# Search Procedure\n{text}\n\nNow we have found the target, let's trace back the solution:\nFinal step: {found[2]}\n"
                f"The step before: {found[1]}\nThe first step: {found[0]}\n\nOutput the solution in the required format:\n<Solution>\n"
                f"{solution}\n</Solution>\n")


@functools.cache
def solved(make, low, high):
    """Two examples."""
    return [make(random.Random(f"example {n}"), low, high) for n in range(2)]


def countdown(rng, size):
    numbers, target, reference = numbers_game(rng, size * 2 // 3, size * 4 // 3)
    examples = "\n\n".join(f"# Example\nNumbers: {a}\nTarget: {b}\n\n{c}" for a, b, c in solved(numbers_game, 1500, 3000))
    return (f"Make the target from four numbers, each used once, with +, -, * and / on two of them at a time, the larger first. Results "
            f"are whole numbers below 2000. Search as the examples do: pairs in order, operations in order, back where a branch fails. "
            f"Write the search down and the three equations between <Solution> and </Solution>.\n\n{examples}\n\n[Problem]\nNumbers: "
            f"{numbers}\nTarget: {target}", reference, {"nums": numbers, "target": target})


def listed(cities):
    return f"[{', '.join(city['city'] for city in cities)}]"


def arrange(day, plan, trip, log):
    """A plan of all cities from `day` on, tried in their order, or None."""
    def note(text):
        log.append((" " * level + "|- " if level else "") + text)
    level = 2 * len(plan)
    note(f"Current day: {day}. Current plan: {listed(plan)}.")
    if len(plan) == trip["num_cities"]:
        note(f"All {trip['num_cities']} cities are arranged. Complete plan is found!")
        return plan
    note(f"Check whether the city with an arrival day of Day {day} - is fixed.")
    set_now = [city for city in trip["fixed"] if city["start_day"] == day]
    free = [city for city in trip["free"] if city["city"] not in [stop["city"] for stop in plan]]
    if set_now:
        note(f"Yes. The city with an arrival day of Day {day} - is fixed: {set_now[0]['city']}.")
    else:
        note(f"No. Consider possible options from cities needing arrangement: {listed(free)} and explore these options in order.")
    following = next((city for city in trip["fixed"] if city["start_day"] > day), None)
    level += 1
    for choice in set_now[:1] or free:
        city, days = choice["city"], choice["num_days"]
        end, last = day + days - 1, plan[-1]["city"] if plan else "the starting point"
        note(f"Try arranging to visit {city} from Day {day}. Duration: {days} days. Schedule: Day {day} - {end}.")
        note(f"Check for direct flight from {last} to {city}.")
        if plan and (last, city) not in trip["flights"]:
            note("No. Drop this branch.")
            continue
        note("Yes.")
        fixed = f"{following['city']} (Day {following['start_day']} - {following['end_day']})" if following else "None"
        note(f"Check whether this arrangement is compatible with the next fixed schedule after Day {day}: {fixed}.")
        if following is None:
            note("No following fixed schedules. This arrangement is compatible.")
        else:
            late = end > following["start_day"]
            note(f"The departure day of {city} is Day {end}. The arrival day of {following['city']} is Day {following['start_day']}. Day "
                 f"{end} is {'later than (>)' if late else 'not later than (<=)'} Day {following['start_day']}. This arrangement is "
                 + ("incompatible. Drop this branch." if late else "compatible."))
            if late:
                continue
        note("This arrangement is feasible for now. Continue to arrange the rest of the plan.")
        found = arrange(end, [*plan, {"city": city, "start_day": day, "end_day": end, "num_days": days}], trip, log)
        if found:
            return found
    note(f"Fail to arrange any option on day {day} in the current arrangement. Drop this branch.")
    return None


def plan_text(plan):
    lines = []
    for stop, onward in zip(plan, [*plan[1:], None]):
        arriving = "Arriving in {city} and visit" if stop is plan[0] else "Visit"
        lines.append(f"**Day {stop['start_day']}-{stop['end_day']}:** {arriving.format(**stop)} {stop['city']} for {stop['num_days']} days.")
        if onward:
            lines.append(f"**Day {stop['end_day']}:** Fly from {stop['city']} to {onward['city']}.")
    return "\n".join(lines)


def trip_of(rng, low, high):
    """A trip, what is told of it, and a search for its plan whose text is of `low` to `high` characters."""
    while True:
        names = rng.sample(PLACES[:200], rng.randrange(4, 10))
        day, stays, fixed = 1, [], []
        for name in names:
            stays.append({"type": "duration", "city": name, "num_days": rng.randrange(2, 6)})
            end = day + stays[-1]["num_days"] - 1
            if rng.random() < 0.25:
                fixed.append({"type": "fixed", "city": name, "start_day": day, "end_day": end, "num_days": stays[-1]["num_days"]})
            day = end
        flights = {*zip(names, names[1:])} | {pair for pair in itertools.permutations(names, 2) if rng.random() < 0.35}
        rng.shuffle(stays)
        set_days = {city["city"]: city for city in fixed}
        trip = {"num_cities": len(names), "flights": flights, "fixed": fixed, "free": [stay for stay in stays if stay["city"] not in set_days]}
        log = ["Read the requirements and identify the cities that have fixed schedules and the cities that need to be arranged."]
        fixed_text = {name: f"Fixed Schedule: Day {city['start_day']} - {city['end_day']}." for name, city in set_days.items()}
        log += [f"* City: {stay['city']}, Duration: {stay['num_days']} days" + (f", {fixed_text[stay['city']]}" if stay["city"] in fixed_text else ".")
                for stay in stays]
        log += ["", "Cities that have fixed schedules (sorted by their arrival days):" if fixed else "Cities that have fixed schedules: None."]
        log += [f"* City: {city['city']}, {fixed_text[city['city']]}" for city in fixed]
        log += ["", "Cities needing arrangement:" if trip["free"] else "Cities needing arrangement: None."]
        log += [f"* City: {stay['city']}, Duration: {stay['num_days']} days." for stay in trip["free"]] + [""]
        plan = arrange(1, [], trip, log)
        if low <= sum(map(len, log)) <= high:
            break
    told = [f"Stay in {stay['city']} for {stay['num_days']} days" + (f", from day {set_days[stay['city']]['start_day']} to day "
            f"{set_days[stay['city']]['end_day']}." if stay["city"] in set_days else ".") for stay in stays]
    text = (f"You visit {len(names)} cities in {day} days. {' '.join(told)}\n\nDirect flights go "
            + ", ".join(f"from {a} to {b}" for a, b in sorted(flights)) + ".")
    procedure = "\n".join(log)
    return text, plan, (f"<Solving Procedure>\n{procedure}\n</Solving Procedure>\n\nOutput the plan in the required format:\n<Plan>\n"
                        f"{plan_text(plan)}\n</Plan>")


def travel_planning(rng, size):
    text, plan, reference = trip_of(rng, size * 2 // 3, size * 4 // 3)
    examples = "\n\n".join(f"# Example\n{a}\n\n{c}" for a, _, c in solved(trip_of, 1500, 3500))
    return (f"Put cities into an order for a trip. The day of a flight counts for both cities, so that a stay of y days from day x ends on "
            f"day x + y - 1. Some stays have fixed days. Only direct flights are taken, in the direction that is said. Search as the "
            f"examples do, between <Solving Procedure> and </Solving Procedure>, and write the plan between <Plan> and </Plan>."
            f"\n\nEXAMPLES:\n{examples}\n\nYOUR TASK:\n{text}", reference,
            {"ground_truth_cities": "**".join(stop["city"] for stop in plan),
             "ground_truth_durations": "**".join(str(stop["num_days"]) for stop in plan)})


def main():
    for make in (html_to_tsv, pseudo_to_code, path_traversal, tom_tracking, countdown, travel_planning):
        for level, size in LEVELS.items():
            name = f"{make.__name__}_{level}"
            if name in ("pseudo_to_code_8k", "travel_planning_0.5k"):
                continue
            rows = []
            for n in range(ROWS):
                prompt, reference, metadata = make(random.Random(f"longproc {name} {n}"), size)
                rows.append({"id": f"{name}_{n}", "input_prompt": prompt, "reference_output": reference, "metadata": json.dumps(metadata)})
            write_rows(f"longproc/{name}.jsonl", rows)
