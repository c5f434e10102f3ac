#!/usr/bin/env python3
"""Writes metrics_graphwalks.json: answers to GraphWalks and their F1 by lm-evaluation-harness (pip install lm-eval).

Its task `graphwalks` restates the data set's own grading, but for quotes, lists that do not follow "Final Answer:" at
once, and questions without a node: none of these is here.
"""

import json
import pathlib
import random

from lm_eval.tasks.graphwalks import utils

ROWS = 120
FORMS = ["Final Answer: [{}]", "Final Answer:[{}]", "I think\nFinal Answer: [{}]", "Final Answer: [{}].", "**Final Answer: [{}]**",
         "Final Answer: [{}]\nDone.", "final answer: [{}]", "[{}]", "Final Answer: {}", "Final Answer:   [ {} ]",
         "Final Answer: [{},]", ""]


def main():
    draws = random.Random("graphwalks")
    names = [f"{draws.getrandbits(40):010x}" for _ in range(40)]
    rows = []
    for n in range(ROWS):
        gold = draws.sample(names, draws.randint(1, 8))
        answer = [name for name in gold if draws.random() < 0.7] + draws.sample(names, draws.choice((0, 0, 1, 3)))
        answer += answer[:draws.choice((0, 0, 2))]
        draws.shuffle(answer)
        listed = draws.choice((", ", ",", " ,  ")).join(answer)
        text = FORMS[n % len(FORMS)].replace("{}", listed)
        rows.append({"prediction": text, "nodes": gold, "f1": utils.process_results({"answer_nodes": gold}, [text])["f1"]})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


main()
