#!/usr/bin/env python3
"""datasets_nolima.py CLONE: writes datasets_nolima.json, the first 12 digits of the SHA-256 of the prompts that NoLiMa's
evaluation makes of the project-made needles and books, who is the answer to each, and verdicts of its metric.

CLONE is adobe-research/NoLiMa @7532e4e, numpy 2.4.6. Its run_tests.py runs whole; the connection to a model is replaced
by one that keeps the prompts, the tokenizer by the words of tests/datasets/word_tokens.h.
"""

import argparse
import hashlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types

from authors_code import module_of
from word_tokens import WordTokens

HERE = pathlib.Path(__file__).resolve().parent
CLONE = pathlib.Path(sys.argv[1])
LENGTHS, DEPTHS = (300, 1200), 7
PROMPTS = []
ANSWERS = ["Maria", "It is Maria.", "maria", "", "Mar ia", "Peter and Maria Holt", "MARIA", " Maria ", "Maria\n", "**Maria**", "Marian",
           "Anna-Maria", "Mária", "Mar\u200bia", "Not Maria, but Peter", "Peter", "aMariab", "Maria" * 50, "M a r i a", "airaM",
           "The character is\n\nMaria.", "Marie", "Mari", "\u039caria"]


class Connector(WordTokens):
    SYSTEM_PROMPT = "You are a helpful assistant"

    def __init__(self, **_):
        pass

    def token_count(self, text):
        return len(self.encode(text))

    async def generate_response(self, system_prompt, user_prompt, **_):
        PROMPTS.append(user_prompt)
        return {"response": ""}


class Parser:
    """Arguments as they are set here, and the defaults of the official parser."""

    def __init__(self, **_):
        self.values = {}

    def add_argument(self, name, default=None, **_):
        self.values[name.strip("-")] = default

    def parse_args(self):
        return argparse.Namespace(**{**self.values, **Parser.chosen})


def stub(name, **members):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)


def main():
    stub("async_api_connector", APIConnector=Connector)
    stub("jsonargparse", ArgumentParser=Parser, ActionConfigFile=None)
    stub("tqdm", tqdm=lambda each: each)
    stub("data")
    sys.modules["data.book_haystack"] = module_of(CLONE / "data/book_haystack.py")
    tester = sys.modules["async_evaluate"] = module_of(CLONE / "evaluation/async_evaluate.py")
    tester.time = types.SimpleNamespace(time=itertools.count().__next__)  # two results of one second have one name
    os.listdir = lambda folder, listed=os.listdir: sorted(listed(folder))  # books in the order of their names
    prompts = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-B", HERE / "../../datasets/samples/make.py", folder], check=True)
        made, books, models = pathlib.Path(folder) / "nolima", pathlib.Path(folder) / "books", pathlib.Path(folder) / "models"
        books.mkdir(), models.mkdir()
        for number in (1, 2):
            (made / f"rand_book_{number}.txt").rename(books / f"rand_book_{number}.txt")
        (models / "m.json").write_text(json.dumps({"max_tokens": 192, "temperature": 0, "top_p": 1}))
        for length in LENGTHS:
            PROMPTS.clear()
            Parser.chosen = {"model_name": "m", "model_configs_dir": str(models), "needle_set_path": str(made / "needle_set.json"),
                             "haystack_dir": str(books), "parent_results_dir": f"{folder}/results{length}", "context_length": length,
                             "document_depth_percent_intervals": DEPTHS, "metric": "contains", "use_default_system_prompt": True}
            module_of(CLONE / "evaluation/run_tests.py", edits=[('if __name__ == "__main__":', "if True:")])
            prompts[str(length)] = [hashlib.sha256(prompt.encode()).hexdigest()[:12] for prompt in PROMPTS]
    judge = types.SimpleNamespace(metric="contains", gold_answers=None)
    verdicts = [[answer, tester.NoLiMa_Tester._evaluate_response(judge, answer, ["Maria"])] for answer in ANSWERS]
    text = json.dumps({"depths": DEPTHS, "prompts": prompts, "gold": "Maria", "verdicts": verdicts})
    pathlib.Path(__file__).with_suffix(".json").write_text(text + "\n")


main()
