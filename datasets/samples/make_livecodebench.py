"""Problems in the form of LiveCodeBench's files: twelve small ones, each as a program that reads and writes, and as a function."""

import base64
import json
import pickle
import random
import zlib

from make_others import write_rows

PUBLIC, PRIVATE = 2, 6  # tests of a problem


def numbers(rng):
    return [[rng.randrange(-20, 60) for _ in range(rng.randrange(1, 9))]]


def word(rng):
    return ["".join(rng.choice("abcde") for _ in range(rng.randrange(1, 12)))]


def pair(rng):
    return [rng.randrange(1, 400), rng.randrange(1, 60)]


# By kind of input: the function's parameters, the line that a program reads, and what that line is called.
KINDS = {numbers: ("nums: List[int]", "nums = list(map(int, input().split()))", "a line of integers"),
         word: ("text: str", "text = input()", "a line with one word"),
         pair: ("a: int, b: int", "a, b = map(int, input().split())", "a line with two positive integers a and b")}
PROBLEMS = [
    ("Total", "the sum of all numbers", numbers, "int", "sum(nums)"),
    ("Largest Gap", "the largest number less the smallest one", numbers, "int", "max(nums) - min(nums)"),
    ("Above the Mean", "how many numbers are larger than the mean of all", numbers, "int", "sum(n * len(nums) > sum(nums) for n in nums)"),
    ("Different Values", "how many different numbers there are", numbers, "int", "len(set(nums))"),
    ("Longest Climb", "the length of the longest run of neighbours in which each number is larger than the one before it", numbers, "int",
     "max(j - i for i in range(len(nums)) for j in range(i + 1, len(nums) + 1) if all(x < y for x, y in zip(nums[i:j], nums[i + 1:j])))"),
    ("Best Stretch", "the largest sum of one or more neighbours", numbers, "int",
     "max(sum(nums[i:j]) for i in range(len(nums)) for j in range(i + 1, len(nums) + 1))"),
    ("Backwards", "the word backwards", word, "str", "text[::-1]"),
    ("First Alone", "the first letter that is there once, or - where there is none", word, "str",
     "next((c for c in text if text.count(c) == 1), '-')"),
    ("Mirror Pieces", "how many pieces of the word, each of one or more neighbouring letters, read the same backwards", word, "int",
     "sum(text[i:j] == text[i:j][::-1] for i in range(len(text)) for j in range(i + 1, len(text) + 1))"),
    ("Common Measure", "the largest number that divides both", pair, "int", "max(d for d in range(1, b + 1) if a % d == b % d == 0)"),
    ("Steps Down", "how often b can be taken from a until less than b is left", pair, "int", "a // b"),
    ("Half and Half", "the mean of a and b", pair, "float", "(a + b) / 2")]


def signature(title, kind, returned):
    name = title[0].lower() + title[1:].replace(" ", "")
    return name, f"class Solution:\n    def {name}(self, {KINDS[kind][0]}) -> {returned}:\n        "


def solutions(problem):
    """A right program, and a right class."""
    title, _, kind, returned, value = problem
    return f"{KINDS[kind][1]}\nprint({value})\n", f"{signature(title, kind, returned)[1]}return {value}\n"


def called(problem, arguments):
    names = {}
    exec(f"from typing import List\n{solutions(problem)[1]}", names)
    return getattr(names["Solution"](), signature(problem[0], problem[2], problem[3])[0])(*arguments)


def line(arguments):
    return " ".join(map(str, arguments[0] if isinstance(arguments[0], list) else arguments))


def tests_of(problem, functional):
    rng = random.Random(f"livecodebench {problem[0]}")
    for _ in range(PUBLIC + PRIVATE):
        arguments = problem[2](rng)
        returned = called(problem, arguments)
        if functional:
            yield {"input": "\n".join(map(json.dumps, arguments)), "output": json.dumps(returned), "testtype": "functional"}
        else:
            yield {"input": line(arguments) + "\n", "output": f"{returned}\n", "testtype": "stdin"}


def encoded(tests):
    """Tests as the official files hide them."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def row(number, problem, functional):
    title, asked, kind, returned, _ = problem
    name, starter = signature(title, kind, returned)
    tests = list(tests_of(problem, functional))
    form = "Complete the method" if functional else f"The input is {KINDS[kind][2]}. Write one line:"
    content = f"{form} {'that returns ' if functional else ''}{asked}.\n" + "".join(
        f"\nExample {n}:\n\nInput: {test['input'].strip()}\nOutput: {test['output'].strip()}\n" for n, test in enumerate(tests[:PUBLIC], 1))
    return {"question_title": title, "question_content": content, "platform": "leetcode" if functional else "atcoder",
            "question_id": f"kvarena-{number}", "contest_id": "kvarena", "contest_date": "2025-01-01T00:00:00",
            "starter_code": starter if functional else "", "difficulty": "easy", "public_test_cases": json.dumps(tests[:PUBLIC]),
            "private_test_cases": encoded(tests[PUBLIC:]), "metadata": json.dumps({"func_name": name} if functional else {})}


def main():
    write_rows("livecodebench/test6.jsonl", [row(2 * n + functional, problem, bool(functional)) for n, problem in enumerate(PROBLEMS)
                                             for functional in (0, 1)])
