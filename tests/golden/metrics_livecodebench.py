#!/usr/bin/env python3
"""Writes metrics_livecodebench.jsonl: answers to the project-made problems, right, wrong, late and broken, with LiveCodeBench's
own results for the program in each (LiveCodeBench @28fef95; numpy, tqdm).

    metrics_livecodebench.py CHECKOUT SAMPLES      SAMPLES: the folder that datasets/samples/make.py wrote
"""

import json
import multiprocessing
import os
import pathlib
import sys
import types

CHECKOUT, SAMPLES = sys.argv[1:]
GOLDEN = pathlib.Path(__file__).resolve()
sys.path[:0] = [CHECKOUT, str(GOLDEN.parents[2] / "datasets/samples")]
sys.modules["datasets"] = types.SimpleNamespace(load_dataset=None)  # of Hugging Face, which nothing here calls
sys.modules["anthropic"] = types.SimpleNamespace(HUMAN_PROMPT=None, AI_PROMPT=None)
os.chdir(CHECKOUT)

import make_livecodebench as samples  # noqa: E402
from lcb_runner.benchmarks.code_generation import CodeGenerationProblem  # noqa: E402
from lcb_runner.evaluation.compute_code_generation_metrics import evaluate_generations_by_problem  # noqa: E402
from lcb_runner.lm_styles import LMStyle  # noqa: E402
from lcb_runner.prompts.code_generation import format_prompt_generation  # noqa: E402
from lcb_runner.utils.extraction_utils import extract_code  # noqa: E402

SECONDS = 2  # of a test
PROGRAMS_OF_A_PROBLEM = 4

# What becomes of a right program that reads `line`, which makes `name` of it, and whose last statement is print(value).
PROGRAMS = {
    "right": lambda line, value: f"{line}\nprint({value})",
    "under a main guard": lambda line, value: f"def main():\n    {line}\n    print({value})\n\nif __name__ == '__main__':\n    main()",
    "ends itself": lambda line, value: f"{line}\nprint({value})\nexit()\nprint('more')",
    "reads all": lambda line, value: f"import sys\ndef input():\n    return sys.stdin.read()\n{line.replace('input()', 'input().strip()')}\nprint({value})",
    "reads lines": lambda line, value: f"import sys\ninput = lambda: sys.stdin.readline().strip()\n{line}\nprint({value})",
    "reads bytes": lambda line, value: f"import sys\ninput = lambda: sys.stdin.buffer.readline().decode().strip()\n{line}\nprint({value})",
    "reads by its own name": lambda line, value: f"from sys import stdin\ninput = stdin.readline\n{line}\nprint({value})",
    "goes over lines": lambda line, value: f"import sys\nfor text in sys.stdin:\n    input = lambda: text\n    {line}\n    print({value})",
    "opens 0": lambda line, value: f"text_in = open(0).read().strip()\ninput = lambda: text_in\n{line}\nprint({value})",
    "reads twice": lambda line, value: f"{line}\nmore = input()\nprint({value})",
    "blanks around": lambda line, value: f"{line}\nprint('  ', {value}, '\\t\\n\\n')",
    "as a decimal": lambda line, value: f"{line}\nprint(str({value}) + '.0' if type({value}) is int else {value})",
    "nearly": lambda line, value: f"{line}\nprint({value}, end='')\nprint(0)",
    "a line too many": lambda line, value: f"{line}\nprint({value})\nprint('done')",
    "nothing": lambda line, value: f"{line}",
    "wrong at times": lambda line, value: f"{line}\nprint({value} if hash(str({value})) and len(str({value})) < 2 else 0)",
    "raises": lambda line, value: f"{line}\nraise ValueError('no')",
    "does not parse": lambda line, value: f"{line}\nprint(({value})",
    "never ends": lambda line, value: f"{line}\nwhile True:\n    pass",
    "catches the alarm": lambda line, value: f"{line}\ntry:\n    while True:\n        pass\nexcept Exception:\n    print({value})",
    "recurses for ever": lambda line, value: f"def f(n):\n    return f(n + 1)\n{line}\nprint(f(0))",
    "dies": lambda line, value: f"import os\n{line}\nos._exit(0)",
    "asks for a folder": lambda line, value: f"import os\n{line}\nos.getcwd()\nprint({value})",
    "a class Solution": lambda line, value: f"class Solution:\n    pass\n{line}\nprint({value})",
    "uses what is there": lambda line, value: f"{line}\ncount = Counter([1])\nprint({value} if math.gcd(4, 6) == 2 and gcd(4, 6) == 2 else 0)",
    "imports": lambda line, value: f"import numpy, resource\n{line}\nprint({value})"}
METHODS = {
    "right": lambda head, value: f"{head}return {value}",
    "with a helper": lambda head, value: f"def helper(x):\n    return x\n\n{head}return helper({value})",
    "a tuple": lambda head, value: f"{head}return ({value},)",
    "a text": lambda head, value: f"{head}return str({value})",
    "a float": lambda head, value: f"{head}return float({value}) if isinstance({value}, int) else {value}",
    "nothing": lambda head, value: f"{head}pass",
    "wrong at times": lambda head, value: f"{head}return {value} if len(str({value})) < 2 else 0",
    "raises": lambda head, value: f"{head}raise KeyError('no')",
    "says so": lambda head, value: f"{head}raise ValueError('a TimeoutException')",
    "does not parse": lambda head, value: f"{head}return ({value}",
    "another name": lambda head, value: f"{head.replace('def ', 'def other_')}return {value}",
    "no class": lambda head, value: head.split("\n")[1].replace("self, ", "").strip() + f"\n    return {value}",
    "needs an argument": lambda head, value: f"{head.replace('self, ', 'self, more, ')}return {value}",
    "never ends": lambda head, value: f"{head}while True: pass",
    "ends itself": lambda head, value: f"{head}exit()",
    "prints": lambda head, value: f"{head}print('hello'); return {value}",
    "fails at once": lambda head, value: f"x = 1 / 0\n{head}return {value}",
    "remembers": lambda head, value: f"seen = []\n{head}seen.append(1); return {value} if len(seen) < 4 else None"}

# Answers around a program.
ANSWERS = {
    "fenced": "```python\n{}\n```",
    "with words": "Here is my solution.\n\n```python\n{}\n```\n\nIt is right.",
    "a draft before": "```python\nprint(1)\n```\nNo, better:\n```\n{}\n```",
    "another language behind": "```python\n{}\n```\n```sh\npython3 a.py\n```",
    "unclosed": "```python\n{}",
    "bare": "{}"}


def results_of(problem, answer):
    """Results of all tests up to the first that fails."""
    program = extract_code(answer, LMStyle.OpenAIChat)
    results, _ = evaluate_generations_by_problem(([program], problem.get_evaluation_sample(), False, SECONDS))
    return [bool(result) if isinstance(result, bool) else result for result in results[0]]


def problems():
    for line in pathlib.Path(SAMPLES, "livecodebench/test6.jsonl").read_text().splitlines():
        yield json.loads(line)


def answers(row, number):
    """Some of the programs for the problem of that number, each in an answer of some form."""
    _, _, kind, _, value = samples.PROBLEMS[number // 2]
    method = row["starter_code"]
    scripts = list((METHODS if method else PROGRAMS).items())
    forms = list(ANSWERS.items())
    for n in range(number // 2 * PROGRAMS_OF_A_PROBLEM, (number // 2 + 1) * PROGRAMS_OF_A_PROBLEM):
        name, make = scripts[n % len(scripts)]
        form, around = forms[0] if n % 3 else forms[n // 3 % len(forms)]
        yield f"{name}, {form}", around.format(make(method or samples.KINDS[kind][1], value))


def rows():
    for number, row in enumerate(problems()):
        problem = CodeGenerationProblem(**row)
        for name, answer in answers(row, number):
            results = results_of(problem, answer)
            yield {"id": f"{row['question_id']}, {name}", "metric": "livecodebench", "seconds": SECONDS,
                   "tests": [row["public_test_cases"], row["private_test_cases"]], "function": problem.metadata.get("func_name"),
                   "model_output": answer, "expected": {"results": results, "passed": all(r > 0 for r in results)}}


def prompts():
    for row in problems():
        yield {"id": row["question_id"], "messages": format_prompt_generation(CodeGenerationProblem(**row), LMStyle.OpenAIChat)}


def main():
    multiprocessing.set_start_method("fork")
    GOLDEN.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    (GOLDEN.parent / "datasets_livecodebench.json").write_text("[\n" + ",\n".join(map(json.dumps, prompts())) + "\n]\n")


main()
