#!/usr/bin/env python3
"""Writes metrics_mrcr.json: answers to MRCR and the ratio of difflib's SequenceMatcher, which the data set's card takes.

An answer without the text that it has to begin with scores 0; the others are compared without it.
"""

import difflib
import json
import pathlib
import random

ROWS = 60


def grade(answer, gold, prefix):
    if not answer.startswith(prefix):
        return 0.0
    return difflib.SequenceMatcher(None, answer.removeprefix(prefix), gold.removeprefix(prefix)).ratio()


def main():
    draws = random.Random("mrcr")
    words = ["harbour", "lantern", "quiet", "Möwe", "rain", "über", "the", "of", "and", "灯", "a", "river", "slowly", "\n"]
    rows = []
    for n in range(ROWS):
        prefix = f"{draws.getrandbits(40):010x}"
        gold = [draws.choice(words) for _ in range(draws.randint(5, 150))]
        answer = [word if draws.random() < 0.8 else draws.choice(words) for word in gold[:draws.randint(1, len(gold))]]
        start = (prefix, prefix, prefix, "", " " + prefix, prefix + prefix)[n % 6]
        row = {"prediction": start + " ".join(answer), "reference": prefix + " ".join(gold), "prefix": prefix}
        rows.append({**row, "score": grade(row["prediction"], row["reference"], prefix)})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


main()
