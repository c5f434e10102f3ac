#!/usr/bin/env python3
"""metrics_multiple_choice.py LM_EVAL: writes metrics_multiple_choice.json, answers to questions with options and the letter
that lm-evaluation-harness finds in them. LM_EVAL is the folder of the package lm_eval 0.4.9.
"""

import json
import pathlib
import random
import sys
import types

from authors_code import module_of

CHOICES = [["Anna Reed", "Peter Cole", "the North-Sea ferry", "42"], ["10 µm", "10", "100 µm.", "1"], ["(S)-2-butanol", "2-butanol", "butanol", ""],
           ["yes", "no", "Yes!", "both"], ["A", "B", "C", "D"], ["one", "two", "three", "four", "five"]]
PARTS = ["The correct answer is", "Answer:", "(A)", "(B)", "(D)", "(Z)", "(a)", "A", "B: ", ": C", ":\n D", "so", "it is not", "Option", "**(C)**",
         "anna reed", "PETER COLE", "the north sea ferry", "10 µm", "100 µm", "butanol", "2-Butanol.", "(S)-2-butanol", "no", "Yes", "five", "E", ":E"]


def official():
    for name in ("lm_eval", "lm_eval.api", "lm_eval.api.filter", "lm_eval.api.registry"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["lm_eval.api.filter"].Filter = object
    sys.modules["lm_eval.api.registry"].register_filter = lambda name: lambda each: each
    return module_of(pathlib.Path(sys.argv[1]) / "filters/extraction.py")


def main():
    find = official().MultiChoiceRegexFilter(regex_pattern=r"(\([A-Z]\))", group_select=-1, ignore_case=True, ignore_punctuation=True)
    rng = random.Random("multiple choice")
    rows = []
    for n in range(240):
        choices = CHOICES[n % len(CHOICES)]
        parts = rng.choices(PARTS, k=rng.randint(0, 4)) if n % 3 else rng.choices([part for part in PARTS if "(" not in part], k=3)
        prediction = " ".join(parts + ([rng.choice(choices)] if n % 4 == 0 else []))
        letter = find.apply([[prediction]], [{"choices": choices}])[0][0].strip("()")
        rows.append({"prediction": prediction, "choices": choices, "letter": "none" if letter == "[invalid]" else letter})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n", encoding="utf-8")


main()
