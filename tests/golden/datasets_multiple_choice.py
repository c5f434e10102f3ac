#!/usr/bin/env python3
"""datasets_multiple_choice.py CLUE LM_EVAL: writes datasets_multiple_choice.json, the first 12 digits of the SHA-256 of
prompts of project-made rows, and verdicts on answers to LongHealth whose right one is B.

CLUE is TIO-IKIM/CLUE @2de4314, whose eval_LongHealth.py has LongHealth's code, here without shuffling letters; LM_EVAL the
folder of the package lm_eval 0.4.9, whose GPQA shuffles the options: lines are sorted, without their letters, before the
hash is taken. numpy and PyYAML.
"""

import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

from authors_code import module_of

HERE = pathlib.Path(__file__).resolve().parent


class Characters:
    encode = staticmethod(list)
    decode = staticmethod("".join)


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def rows_of(path):
    return [json.loads(line) for line in open(path, encoding="utf-8")]


def longhealth(official, samples):
    found = []
    for row in rows_of(samples / "longhealth/benchmark_v5.jsonl"):
        for question in row["questions"]:
            # All letters as answers keep their order.
            asked = {**question, "answer_location": {name: {"start": [0], "end": [1]} for name in row["texts"]}}
            prompt, _ = official.create_prompt(row["texts"], [], asked, max_len=10**9, tokenizer=Characters, shuffle=False)
            found.append(digest(official.sys_prompt + prompt))
    return found


def gpqa(samples):
    folder = pathlib.Path(sys.argv[2]) / "tasks/gpqa/cot_zeroshot"
    official = module_of(folder / "utils.py", ["datasets"])
    form = yaml.safe_load((folder / "_gpqa_cot_zeroshot_yaml").read_text().replace("!function ", ""))["doc_to_text"]
    found = []
    for row in rows_of(samples / "gpqa/gpqa_diamond.jsonl"):
        class Rows:
            map = staticmethod(lambda make: make(row))
        doc = {**row, **official.process_docs(Rows)}
        prompt = re.sub(r"\{\{(\w+)\}\}", lambda slot: doc[slot[1]], form)
        found.append(digest("\n".join(sorted(re.sub(r"^\([A-D]\) ", "", line) for line in prompt.split("\n")))))
    return found


ANSWERS = ["The correct answer is B: 72.", "The correct answer is B", "the correct answer is B: 72", "The correct answer is C: 72. The "
           "correct answer is B: 7", "B: 72", "The correct answer is (B): 72", "So.\nThe correct answer is B: x", "", "The correct answer is 7:", "B", "b: 72",
           "The correct answer is b: 72", "The correct answer is A: B: 72", "The correct answer is B:72", "The correct answer is  B: 72",
           "The correct answer is\nB: 72", "The correct answer is: B: 72", "**The correct answer is B: 72**", "Answer: B: 72",
           "The correct answer is BC: 72", "The correct answer is B. 72", "A: 1 or B: 72", "The right answer is B: 72",
           "The correct answer is E: 72", "THE CORRECT ANSWER IS B: 72", "The correct answer is not C, it is B: 72"]


def main():
    official = module_of(pathlib.Path(sys.argv[1]) / "eval/eval_LongHealth.py", ["transformers", "vllm", "tqdm", "huggingface_hub", "utils"])
    with tempfile.TemporaryDirectory() as folder:
        samples = pathlib.Path(folder)
        subprocess.run([sys.executable, "-B", HERE / "../../datasets/samples/make.py", samples], check=True)
        found = {"longhealth": longhealth(official, samples), "gpqa": gpqa(samples),
                 "longhealth_answers": [[answer, bool(official.compute_metrics(answer, "B"))] for answer in ANSWERS]}
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(found) + "\n")


main()
