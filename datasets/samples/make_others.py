#!/usr/bin/env python3
"""Writes the small project-made files of all families but LongBench, in the forms of the official files.

Every text is the project's own. Run it in this folder after make_longbench.py; the result does not depend on the machine.
"""

import json
import os
import random
import uuid

from make_longbench import PEOPLE, RIVERS, TOWNS, TRADES, town_text


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def write_rows(path, rows):
    write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def longbench_v2():
    rows = []
    for n in range(3):
        rng = random.Random(f"longbench-v2 {n}")
        choices = [PEOPLE[k] for k in rng.sample(range(6), 4)]
        if PEOPLE[n] not in choices:
            choices[n] = PEOPLE[n]
        rows.append({
            "_id": f"kvarena-{n}", "domain": ["Single-Document QA", "Multi-Document QA", "Long In-context Learning"][n],
            "sub_domain": "Towns", "difficulty": ["easy", "hard", "easy"][n], "length": ["short", "medium", "long"][n],
            "question": f" Who founded the {TRADES[n]} of {TOWNS[n]}? ", "choice_A": choices[0], "choice_B": choices[1],
            "choice_C": choices[2], "choice_D": choices[3], "answer": "ABCD"[choices.index(PEOPLE[n])],
            "context": "\n\n".join(town_text(rng, k, 7) for k in range(6)) + "\n"})
    write("longbench-v2/data.json", json.dumps(rows, ensure_ascii=False, indent=1) + "\n")


def longwriter():
    en = [{"prompt": f"Write a {n}-word guide to {TOWNS[n // 200]} for people who arrive by train.", "type": "Guide",
           "length": n} for n in (200, 600, 1000)]
    zh = [{"prompt": "请写一篇300字的文章，介绍青石镇的苹果节。", "type": "Article", "length": 300}]
    write_rows("longwriter/longbench_write.jsonl", en + zh)
    write_rows("longwriter/longbench_write_en.jsonl", en)
    write_rows("longwriter/longwrite_ruler.jsonl",
               [{"prompt": f"Write a {n}-word history of a bridge.", "type": "Ruler", "length": n}
                for n in (500, 2000, 8000)])


HAY = "The lamp is lit. The door is shut. The kettle hums. Nothing else moves."


def infinitebench():
    def hidden(sentence, rng):
        lines = [HAY] * 40
        lines.insert(rng.randrange(41), sentence)
        return "\n".join(lines)

    rows = {task: [] for task in ("passkey", "number_string", "kv_retrieval", "math_find", "code_run")}
    for n in range(3):
        rng = random.Random(f"infinitebench {n}")
        key = str(rng.randrange(10000, 99999))
        rows["passkey"].append({"id": n, "context": hidden(f"The pass key is {key}. Remember it. {key} is the pass key.", rng),
                                "input": "What is the pass key?", "answer": key, "options": []})
        digits = "".join(str(rng.randrange(10)) for _ in range(10))
        rows["number_string"].append({"id": n, "context": hidden(
            f"The sequence of digits is {digits}. Remember it. {digits} is the sequence of digits.", rng),
            "input": "What is the sequence of digits?", "answer": digits, "options": []})
        pairs = [(str(uuid.UUID(int=rng.getrandbits(128))), str(uuid.UUID(int=rng.getrandbits(128)))) for _ in range(25)]
        wanted, value = rng.choice(pairs)
        rows["kv_retrieval"].append({"id": n, "context": "JSON data:\n" + json.dumps(dict(pairs)),
                                     "input": f'\nKey: "{wanted}"\nThe value associated with the specified key is: ',
                                     "answer": value, "options": []})
        numbers = [rng.randrange(-99, 100) for _ in range(60)]
        word, pick = [("largest", max), ("smallest", min), ("largest", max)][n]
        rows["math_find"].append({"id": n, "context": str(numbers), "input":
                                  f"You should answer with only one number, no other words. The {word} number of the list is: ",
                                  "answer": pick(numbers), "options": []})
        adds = [rng.randrange(-6, 7) for _ in range(12)]
        code = [f"def func_0(x):\n    return x + {adds[0]}"]
        code += [f"def func_{k}(x):\n    return func_{k - 1}(x) + {adds[k]}" for k in range(1, 12)]
        x, k = rng.randrange(-9, 10), rng.randrange(3, 12)
        rows["code_run"].append({"id": n, "context": "\n\n".join(code), "input":
                                 f"Please give me the exact number of the return value of func_{k}({x}). Be concise.",
                                 "answer": x + sum(adds[:k + 1]), "options": []})
    for task, task_rows in rows.items():
        write_rows(f"infinitebench/{task}.jsonl", task_rows)


def gsm8k():
    rows = []
    for n in range(6):
        a, b, c = 3 + n, 4 + 2 * n, 5 + n
        rows.append({"question": f"{PEOPLE[n]} packs {a} boxes with {b} apples each and keeps {c} apples. How many apples are there?",
                     "answer": f"The boxes hold {a} * {b} = <<{a}*{b}={a * b}>>{a * b} apples.\n"
                               f"Together there are {a * b} + {c} = <<{a * b}+{c}={a * b + c}>>{a * b + c} apples.\n#### {a * b + c}"})
    write_rows("gsm8k/test.jsonl", rows)
    questions, answers = "", ""
    for n in range(8):
        a, b = 7 + 3 * n, 2 + n
        questions += f"Question_{n + 1}: \n{PEOPLE[n % 6]} has {a} stamps and buys {b} more. How many stamps is that?\n\n"
        answers += f"Answer_{n + 1}: \nAt first there were {a} stamps. {a} + {b} = {a + b}. The answer is {a + b}.\n\n"
    write("longgenbench-gsm8k/LongGenBench_prompt.txt", (questions + answers).rstrip("\n"))


def function(name, description, **parameters):
    return {"name": name, "description": description, "parameters": {
        "type": "dict", "properties": {k: {"type": t, "description": f"The {k}."} for k, t in parameters.items()},
        "required": list(parameters)}}


def bfcl():
    area = function("geometry.rectangle_area", "Area of a rectangle.", width="integer", height="integer")
    route = function("map.route", "Shortest route between two towns.", start="string", goal="string")
    tide = function("harbor.tide", "Time of high water.", town="string", day="string")
    user = lambda text: [[{"role": "user", "content": text}]]
    call = lambda name, **values: {name: {k: [v] for k, v in values.items()}}
    sets = {
        "simple_python": [], "multiple": [], "parallel": [], "parallel_multiple": [], "irrelevance": []}
    answers = {name: [] for name in sets}
    for n in range(3):
        w, h = 3 + n, 8 + n
        a, b = TOWNS[n], TOWNS[n + 1]
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
    for name, rows in sets.items():
        prefix = name
        write_rows(f"bfcl/BFCL_v4_{name}.json",
                   [{"id": f"{prefix}_{n}", "question": q, "function": f} for n, (q, f) in enumerate(rows)])
        if answers[name]:
            write_rows(f"bfcl/possible_answer/BFCL_v4_{name}.json",
                       [{"id": f"{prefix}_{n}", "ground_truth": g} for n, g in enumerate(answers[name])])


def complexfuncbench():
    find = {"name": "Find_Town", "description": "Look a town up.", "parameters": {
        "type": "object", "properties": {"query": {"type": "string", "description": "Name of the town."}}, "required": ["query"]}}
    inns = {"name": "Search_Inns", "description": "Inns of a town.", "parameters": {
        "type": "object", "properties": {"town_id": {"type": "string", "description": "Identifier."},
                                         "guests": {"type": "number", "description": "Number of guests."}},
        "required": ["town_id", "guests"]}}
    rows = []
    for n in range(3):
        rows.append({"id": f"Hotels-{n}", "conversations": [
            {"role": "user", "content": f"Find an inn for {n + 2} people in {TOWNS[n]}."},
            {"role": "assistant", "function_call": [{"name": "Find_Town", "arguments": {"query": TOWNS[n]}}]},
            {"role": "observation", "content": [{"status": True, "data": {"town_id": f"t{n}"}}]},
            {"role": "assistant", "function_call": [{"name": "Search_Inns", "arguments": {"town_id": f"t{n}", "guests": n + 2}}]},
            {"role": "observation", "content": [{"status": True, "data": [{"name": "The Red Hare", "price": 40 + n}]}]},
            {"role": "assistant", "content": f"The Red Hare has room for {n + 2} people."}], "functions": [find, inns]})
    write_rows("complexfuncbench/ComplexFuncBench.jsonl", rows)


def longgenbench():
    for name, kind, number in (("short", "Floor", 12), ("long", "Day", 30)):
        rows = []
        for n in range(3):
            prefix = f"#*# {kind} 1:"
            rows.append({"prompt": f"Describe {kind.lower()}s 1 to {number} of a house in {TOWNS[n]}, each after '#*#'. "
                                   f"{kind} {n + 2} has a library. End with *** finished.\n{prefix}",
                         "checks_once": {str(n + 2): "a library"}, "checks_range": {"4": "a garden", "5": "a garden"},
                         "checks_periodic": {"3": "a stair", "6": "a stair"}, "type": kind, "prefix": prefix,
                         "number": number})
        write(f"longgenbench/Dataset_{name}.json", json.dumps(rows, indent=1) + "\n")


def pisanitizer():
    for task in ("qasper", "hotpotqa", "gov_report", "multi_news", "passage_retrieval_en", "lcc"):
        with open(f"longbench/{task}.jsonl", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        wrong = {"passage_retrieval_en": "Paragraph 99", "lcc": "return None", "gov_report": "Nothing happened.",
                 "multi_news": "Nothing happened."}.get(task, "Nobody Inparticular")
        write(f"pisanitizer/LongBench_incorrect_answer/{task}.json", json.dumps(
            [{"input": r["input"], "context": r["context"], "answers": r["answers"], "incorrect_answer": wrong} for r in rows],
            ensure_ascii=False) + "\n")


def traces():
    messages = [{"role": "system", "content": "You work in a shell."}, {"role": "user", "content": "Fix the failing test."}]
    rows = []
    for session in range(2):
        history = list(messages)
        for turn in range(3):
            rows.append({"session_id": f"kvarena__s{session}", "model": "none", "input": list(history),
                         "output_length": 20 + turn, "pre_gap": 0.5 * turn})
            history += [{"role": "assistant", "content": f"Run step {turn}."}, {"role": "tool", "content": f"exit code {turn}"}]
    write_rows("lmcache-agentic-traces/traces.jsonl", rows)
    write_rows("lmcache-agent-trace/miniswe/session.jsonl",
               [{"timestamp": 1000000 + 500000 * n, "input": f"Observation {n}: two tests fail.",
                 "output": f"THOUGHT: look at file {n}.", "session_id": "session"} for n in range(3)])
    write("azure-llm-2023/AzureLLMInferenceTrace_conv.csv",
          "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
          "2023-11-16 18:15:51.2224670,879,55\n")
    write("azure-llm-2023/AzureLLMInferenceTrace_code.csv",
          "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8\r\n")
    write_rows("mooncake/conversation_trace.jsonl",
               [{"timestamp": 3000 * n, "input_length": 600 + 512 * n, "output_length": 30, "hash_ids": [0] + list(range(1, 2 + n))}
                for n in range(3)])


def pg19():
    rng = random.Random("pg19")
    for n in range(3):
        paragraphs = [town_text(rng, rng.randrange(6), 7) for _ in range(12)]
        write(f"pg19/test/{n}.txt", f"CHAPTER {n + 1}\n\n" + "\n\n".join(paragraphs) + "\n")


def swe_bench():
    rows = []
    for n in range(3):
        patch = f"diff --git a/app/limit.py b/app/limit.py\n--- a/app/limit.py\n+++ b/app/limit.py\n@@ -1,3 +1,3 @@\n import os\n-LIMIT = {n}\n+LIMIT = {n + 10}\n # end\n"
        rows.append({"repo": "kvarena/example", "instance_id": f"kvarena__example-{n}", "base_commit": "0" * 40, "patch": patch,
                     "test_patch": "", "problem_statement": f"LIMIT in app/limit.py is {n}; it must be {n + 10}.",
                     "hints_text": "", "created_at": "2025-01-01T00:00:00Z", "version": "1.0", "FAIL_TO_PASS": "[]",
                     "PASS_TO_PASS": "[]", "environment_setup_commit": "0" * 40})
    write_rows("swe-bench-lite/test.jsonl", rows)


for make in (longbench_v2, longwriter, infinitebench, gsm8k, bfcl, complexfuncbench, longgenbench, pisanitizer, traces, pg19,
             swe_bench):
    make()
