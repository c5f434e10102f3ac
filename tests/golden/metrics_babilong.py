#!/usr/bin/env python3
"""metrics_babilong.py CLONE: writes metrics_babilong.json, answers to BABILong and what the clone's metrics.py finds of them.

CLONE is booydar/babilong at 7a6efee.
"""

import json
import pathlib
import random
import sys

sys.path.insert(0, sys.argv[1])
from babilong.metrics import TASK_LABELS, compare_answers  # noqa: E402

FORMS = ["{}", "{}.", "The most recent location of Mary is {}.", "{}. Or {}.", "{} or {}", "{} <example> {}", "I do not know.",
         "{}\nQuestion: Where is {}?", "", "<context> {}", "Before the {} it was in the {}."]
QUESTIONS = ["Where is Mary? ", "Where was the apple before the {}? ", "What is north of the {}? ", "Who gave the {} to Fred? "]


def main():
    draws = random.Random("babilong")
    rows = []
    for n in range(150):
        labels = TASK_LABELS[draws.choice(["qa1", "qa3", "qa4", "qa5", "qa8"])]
        target = draws.choice(labels)
        if "nothing" in labels and n % 2:
            target = ",".join(draws.sample(labels[:3], 2))
        words = [draws.choice((target.replace(",", " and "), draws.choice(labels))) for _ in range(2)]
        row = {"prediction": FORMS[n % len(FORMS)].format(*words), "target": target, "labels": labels,
               "question": draws.choice(QUESTIONS).format(draws.choice(labels))}
        right = compare_answers(row["target"], row["prediction"], row["question"], set(labels))
        rows.append({**row, "right": right})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


main()
