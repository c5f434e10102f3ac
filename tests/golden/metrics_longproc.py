#!/usr/bin/env python3
"""metrics_longproc.py LONGPROC: writes metrics_longproc.json, answers to small problems of LongProc with what its scorers find.

LONGPROC is a checkout of princeton-pli/LongProc @78e873a, with pandas 2.3.3, PyYAML and g++ 12. Where its code raises, the score is null.
Programs are compiled and run by that code, unguarded.
It also looks whether the project-made searches are written as its builders write them.
"""

import contextlib
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [sys.argv[1], str(HERE / "../../datasets/samples")]
import make_longproc  # noqa: E402
from longproc import countdown_evaluator, longproc_data, travel_planning_evaluator  # noqa: E402

TABLE = "name\tprice\tsize\nBlue lamp\t3.50 €\tN/A\nThe red chair\t1,200\t40 x 40\nA \"long\" table\t\tbig\nblue lamp\t3.50 €\tNA"
TABLES = [
    TABLE, f"```tsv\n{TABLE}\n```", f"Here it is:\n```tsv\n{TABLE}\n```\nDone. ```", f"```tsv\n{TABLE}", f"```TSV\n{TABLE}\n```",
    TABLE.replace("name", "Name"), TABLE.replace("\n", "\r\n"), "\n".join(TABLE.split("\n")[:3]), TABLE + "\nThe above is my table",
    TABLE + "\nx\ty\tz", TABLE + "\n\n", TABLE.replace("\t40 x 40", ""), TABLE.replace("lamp", "Lamp!"), TABLE.replace("\t", "  "), "", "name",
    "name\tprice\tsize", "name\tprice\tsize\nonly one", "a\ta\tb\nBlue lamp\t3.50 €\tN/A\nx\ty\tz", "a\tb\nBlue lamp\t3.50 €", "```tsv\n```",
    "x\ty\tz\n\"Blue lamp\"\t\"3.50 €\"\t\"N/A\"", "x\ty\tz\n\"Blue\nlamp\"\t3.50 €\tN/A", "x\ty\tz\n\"Blue \"\"lamp\"\"\t3.50 €\tN/A\nq\tr\ts",
    "x\ty\tz\n\"Blue\" lamp\t3.50 €\tN/A", "x\ty\tz\nBlue lamp\t3.50 €\t\"N/A", "x\ty\tz\nBlue\rlamp\t3.50 €\tN/A", "x\ty\tz\n\nBlue lamp\t3.50 €\tN/A",
    "x\ty\tz\nBlue lamp\t3.50 €\tN/A\t\n1\t2\t3", "x\ty\tz\nblue the lamp\t3.50€\tn/a\nBLUE LAMP\t3 50 €\tna", "```tsv\nx\ty\tz\nBlue lamp\t3.50 €\tN/A\n``` or "
    "```tsv\nx\ty\tz\nq\tr\ts\n```", "x\ty\tz\nBlue lamp\t3.50 €\tN/A\n\t\t\n", "x\ty\tz\n\"\"\t\"\"\t\"\"\nBlue lamp\t3.50 €\tN/A", "\x0bx\ty\tz\nÄ\tß\tİ\n",
    "x\ty\tz\n\"\"Blue lamp\"\"\t3.50 €\tN/A", "x\ty\tz\r\nBlue lamp\t3.50 €\tN/A\r\n\r\n", "x\ty\tz\n\"Blue lamp\"\r\t3.50 €\tN/A"]

ROUTE = "\n".join(f"From {a}, take a bus to {b}." for a, b in zip("ABCDEF", "BCDEFG"))
ROUTES = [
    f"<Route>\n{ROUTE}\n</Route>", f"Sure.\n<Route>{ROUTE}</Route> <Route>x</Route>", ROUTE, f"<Route>\n{ROUTE}", f"{ROUTE}\n</Route>", "</Route><Route>", "",
    f"</Route> {ROUTE} <Route>", "<Route></Route>", f"<Route>\n{ROUTE}\nFrom G, take a bus to H.\n</Route>", f"<Route>\n{ROUTE.replace('bus', 'train')}\n</Route>",
    f"<Route>\n{ROUTE[:-1]}\n</Route>", f"<route>\n{ROUTE}\n</route>", "<Route>\n" + ROUTE.replace("D", "X") + "\n</Route>",
    "<Route>\n" + "\n".join(ROUTE.split("\n")[:3]) + "\n</Route>", "<Route>\n" + ROUTE.replace("\n", "\n\n") + "\n</Route>",
    "<Route>\n" + ROUTE.replace("\n", " \n") + "\n</Route>", "<Route>\r\n" + ROUTE.replace("\n", "\r\n") + "\r\n</Route>", "<Route>\n \u00a0" + ROUTE + "\u3000</Route>",
    "<Route>\n" + "\n".join(ROUTE.split("\n")[1:]) + "\n</Route>", "<Route>" + ROUTE.split("\n")[0] + "</Route>"]

BELIEFS = "Anna's belief on the cup:\n" + "\n".join(
    f"- Step {n}: (cup location unchanged) {{Anna location: hall; cup location: hall's {where}; Anna's belief on cup: hall's {where}}}"
    for n, where in enumerate(["shelf", "shelf", "table", "table", "chest"])) + "\nFinal Answer: the hall's chest"
TRACKS = [
    BELIEFS, BELIEFS.replace("- ", "-"), BELIEFS.replace("- ", "  - "), BELIEFS.replace("- ", "* "), "", "-", "- \n- the", "Nothing.", BELIEFS.upper(),
    BELIEFS.replace("'s", "’s"), BELIEFS.replace("chest", "bench"), BELIEFS.replace("(cup location unchanged) ", ""), "\n".join(BELIEFS.split("\n")[:4]),
    BELIEFS + "\n- and more", BELIEFS + "\n-", "- first of all\n" + BELIEFS, BELIEFS.replace("\n", "\r\n"), BELIEFS.replace("\n", "\u2028"),
    BELIEFS.replace("\n", "\x0c"), BELIEFS.replace("\n", "\x85"), BELIEFS.replace("\n- Step 1", "\n \u00a0- Step 1"), BELIEFS.replace("location: ", ""),
    BELIEFS.replace(" Step", " Steps"), BELIEFS.replace("hall's table", "halls  table"), "\n  " + BELIEFS[BELIEFS.index("-"):], BELIEFS.replace("{", "").replace("}", "."),
    BELIEFS.replace("table; Anna's", "tablé; Anna's"), "- - Step 0 " + BELIEFS[BELIEFS.index(":") + 1:], BELIEFS.replace("Anna location", "Location of Anna")]

PROGRAM = "int main() {\n    int n, x; long long sum = 0;\n    cin >> n;\n    while (n--) { cin >> x; sum += x; }\n    cout << sum << endl;\n}"
RUNS = [[["3", "1 2 3"], ["6"]], [["1", "-5"], ["-5"]], [["0", ""], ["0"]]]
PROGRAMS = [f"```cpp\n{code}\n```" for code in (
    PROGRAM, PROGRAM.replace("sum += x", "sum = x"), PROGRAM.replace("endl", "' ' << endl"), PROGRAM.replace(" << endl", ""), PROGRAM.replace("int n, x;", "int n x;"),
    PROGRAM.replace("cin >> n;", "while (true) {}"), PROGRAM.replace("cin >> n;", "cin >> n; int* p = nullptr; *p = n;"), PROGRAM[:-1] + "return 3; }",
    PROGRAM.replace("cout", "cerr << 1; cout"), PROGRAM.replace("cout", "cout << char(200); cout"), "#include <unordered_map>\n" + PROGRAM,
    PROGRAM.replace("cin >> n;", "cout << 6 << endl; return 0;"), PROGRAM.replace("main", "start"), "", "int main() { cout << \"6\\n\"; abort(); }",
    PROGRAM + "\n```\nor\n```cpp\n" + PROGRAM, PROGRAM.replace("sum = 0", "sum = 0; assert(1)"), PROGRAM.replace("long long", "auto"))]
PROGRAMS += [PROGRAMS[0].replace("```cpp", "```c++"), PROGRAMS[0].replace("```cpp", "```"), PROGRAM, PROGRAMS[0][:-3], "So:\n" + PROGRAMS[0] + "\nDone.", ""]

NUMS, TARGET = [2, 3, 7, 40], 40
SOLUTIONS = [
    "3 - 2 = 1\n7 * 1 = 7\n40 * 1 = 40", "40 + 2 = 42\n7 - 3 = 4\n42 - 4 = 38", "40 + 7 = 47\n3 + 2 = 5\n47 - 5 = 42", "2 * 3 = 6\n7 - 6 = 1\n40 * 1 = 40",
    "2 * 3 = 6\n7 - 6 = 1\n40 / 1 = 40", "2*3=6\n7-6=1\n40/1=40", " 2 * 3 = 6 \n\t7 - 6 = 1\n40 / 1 = +40", "3 * 2 = 6\n6 - 7 = -1\n-1 + 40 = 39",
    "6 - 7 = -1\n2 * 3 = 6\n40 * 1 = 40", "2 - 3 = -1\n7 + -1 = 6\n40 - 6 = 34", "2 * 3 = 6\n7 - 6 = 1", "2 * 3 = 6\n7 - 6 = 1\n40 * 1 = 40\n", "2 * 3 = 6\n\n7 - 6 = 1\n40 * 1 = 40",
    "2 * 3 = 6.\n7 - 6 = 1\n40 * 1 = 40", "First: 2 * 3 = 6\n7 - 6 = 1\n40 * 1 = 40", "2 * 3 = 06\n7 - 6 = 1\n40 * 1 = 40", "02 * 3 = 6\n7 - 6 = 1\n40 * 1 = 40",
    "2 * 3 == 6\n7 - 6 = 1\n40 * 1 = 40", "2 × 3 = 6\n7 - 6 = 1\n40 * 1 = 40", "7 / 3 = 2\n2 - 2 = 0\n40 + 0 = 40", "2 - 2 = 0\n7 - 3 = 4\n40 + 0 = 40", "40 / 0 = 0\n1\n2",
    "a + b = c\nx\ny", "2 ** 3 = 8\n8 - 7 = 1\n40 * 1 = 40", "7 // 3 = 2\n2 - 2 = 0\n40 + 0 = 40", "2 + 3 + 7 = 12\n40 + 12 = 52\n52 = 52", "(2 * 3) = 6\n7 - 6 = 1\n40 * 1 = 40",
    "2 * 3 = 6\n7 - 6 = 1\n40 * 1 = 40 ", "6 = 2 * 3\n7 - 6 = 1\n40 * 1 = 40", "", "2 * 3 = 6\n1 = 1\n40 * 1 = 40", "2 * -3 = -6\n7 - 6 = 1\n40 * 1 = 40", "-2 - 3 = -5\n7\n40",
    "3 + -2 = 1\n7 * 1 = 7\n40 * 1 = 40", "2 * 3 = 6 # six\n7 - 6 = 1\n40 * 1 = 40", "2 * 3 = 6\n7 - 6 = 1\n40 * 1 = 40 = 40", "99999999999999999999 * 2 = 4\n7\n2"]


def null_where_it_raises(score):
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return score()[0]
        except Exception:  # which exception does not matter: none is caught there
            return None


def changed(text, rng):
    """A text with one change of those that models make."""
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    how = rng.randrange(8)
    if how == 0:
        return "\n".join(lines[:at])
    if how == 1:
        del lines[at]
    elif how == 2:
        lines.insert(at, lines[at])
    elif how == 3:
        lines[at] = re.sub(r"\d+", lambda number: str(int(number[0]) + 1), lines[at], count=1)
    elif how == 4:
        lines[at] = lines[at].replace("Drop", "drop").replace(", drop this branch", ", go on").replace("Day ", "day ")
    elif how == 5:
        lines[at] = f"  {lines[at].strip()}  "
    elif how == 6:
        lines[at] = lines[at].replace("(", "").replace(" = ", " == ")
    else:
        return text.replace("</", "<", 1)
    return "\n".join(lines)


def variants(name, reference, count, tags):
    rng = random.Random(name)
    made = [reference, "", f"Sure!\n{reference}\nHope it helps.", *(reference.replace(tag, "") for tag in tags), reference.split("\n\n")[0],
            reference.split("\n")[0], "\n".join(reference.split("\n")[:2]), "\n".join(reference.split("\n")[1:]), "Again: " + reference + "\n" + reference]
    while len(made) < count:
        text = changed(made[rng.randrange(3, len(made))] if rng.random() < 0.3 else reference, rng)
        if text not in made:
            made.append(text)
    return made


def same_searches():
    """Fails where a project-made reference is not what the builders make of its problem."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-B", HERE / "../../datasets/samples/make.py", folder], check=True)
        for path in sorted(pathlib.Path(folder, "longproc").glob("countdown_*")):
            for row in map(json.loads, path.open()):
                item = json.loads(row["metadata"])
                assert countdown_evaluator.build_countdown_demonstration(item["nums"], item["target"])[1] == row["reference_output"], row["id"]
        for path in sorted(pathlib.Path(folder, "longproc").glob("*.jsonl")):
            task = path.stem.rpartition("_")[0]
            for row in map(json.loads, path.open()):
                item = {**json.loads(row["metadata"]), "reference_output": row["reference_output"]}
                if task == "pseudo_to_code" and not row["id"].endswith("0"):
                    continue  # a second each
                answer = {"pseudo_to_code": "```cpp\n{}\n```", "path_traversal": "<Route>\n{}\n</Route>", "html_to_tsv": "```tsv\n{}\n```"}.get(task, "{}").replace("{}", row["reference_output"])
                found = null_where_it_raises(lambda: getattr(longproc_data, f"eval_{task}")(answer, {"reference_output": row["reference_output"], "item": item}))
                assert found.get("accuracy", found.get("f1")) == 1, row["id"]


def main():
    os.chdir(tempfile.mkdtemp())  # where programs are compiled
    same_searches()
    nums, target, search = make_longproc.numbers_game(random.Random("vectors"), 500, 1100)
    told, plan, trip = make_longproc.trip_of(random.Random("vectors"), 2500, 3500)
    item = {"ground_truth_cities": "**".join(stop["city"] for stop in plan), "ground_truth_durations": "**".join(str(stop["num_days"]) for stop in plan)}
    procedure, plan_part = trip.split("</Solving Procedure>")
    plans = ["<Plan>" + text + "</Plan>" for text in (
        plan_part, plan_part.replace("**", ""), plan_part.replace("Fly from", "Take a train from"), "trip of European cities for 9 days\n" + plan_part,
        plan_part + f"\nDay 99: fly from {plan[-1]['city']} to Rome\nDay 99-101", plan_part.replace("Day 1-", "Day 2-"), plan_part.replace("\n", " "), "Day 1-2")]
    problems = [
        ("html_to_tsv", TABLE, {}, TABLES), ("path_traversal", ROUTE, {}, ROUTES), ("tom_tracking", BELIEFS, {}, TRACKS),
        ("pseudo_to_code", PROGRAM, {"testcases": RUNS}, PROGRAMS),
        ("countdown", "# Search Procedure\nInitial\n |- Pick two numbers (2, 3)\n\nNow we have found the target, x", {"nums": NUMS, "target": TARGET},
         [f"<Solution>\n{text}\n</Solution>" for text in SOLUTIONS] + [SOLUTIONS[3], "<Solution>" + SOLUTIONS[3], "</Solution><Solution>"]),
        ("countdown", search, {"nums": nums, "target": target}, variants("countdown", search, 50, ["</Solution>", "# Search Procedure", "Try"])),
        ("travel_planning", trip, item, plans + variants("travel", trip, 24, ["</Plan>", "<Solving Procedure>", "Fly"]))]
    made = []
    for task, reference, metadata, answers in problems:
        official = getattr(longproc_data, f"eval_{task}")
        example = {"reference_output": reference, "item": {**metadata, "reference_output": reference}}
        made.append({"task": task, "reference": reference, **metadata,
                     "answers": [[answer, null_where_it_raises(lambda: official(answer, example))] for answer in answers]})
    pathlib.Path(__file__).with_suffix(".json").write_text(
        "[" + ",\n".join(json.dumps(problem, ensure_ascii=False) for problem in made) + "]\n", encoding="utf-8")
    print({problem["task"]: (len(problem["answers"]), sum(score is None for _, score in problem["answers"])) for problem in made})


main()
