#!/usr/bin/env python3
"""datasets_zero_scrolls.py FOLDER: writes datasets_zero_scrolls.json, the first 12 digits of the SHA-256 of prompts of the
project-made rows of ZeroSCROLLS, whole and cut to 700 tokens, and scores of answers.

FOLDER has a checkout of tau-nlp/zero_scrolls @c994676, whose experiments/hf/run_hf_model.py makes the prompts with the words
of tests/datasets/word_tokens.h as tokens; zero_scrolls_metrics.py, the functions of metrics/{f1,accuracy,exp_similarity,
concordance_index}.py of the data set's repository in one file; and OpenLMLab/LEval @cd34b05, whose Evaluation/auto_eval.py has
the ROUGE of SCROLLS, without cutting of sentences here, which only rougeLsum sees. numpy 2.4.6, rouge_score 0.1.2,
Unidecode 1.4.0, lifelines 0.30.3, nltk 3.10.4.
"""

import hashlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import types

import numpy

from authors_code import module_of
from word_tokens import WordTokens

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUTS = pathlib.Path(sys.argv[1])
LIMIT = 700
WORDS = "the ferry harbour runs . council of at noon twice a day 3 boats. naïve \n Zoë Straße œuvre l’été don't — café cafe".split(" ")
LETTERS = ["A", "(B)", "B.", "The answer is C", "a", "AB", "D) it is", "", "Answer: (A) or (B)", "ÄA", "_A", "E, then D"]
PERCENTAGES = ["40%", "42.5%", "about 38 % or 37%", "0.4", "100%", "7%", "", "45.%", "٣٥%", "-5%", "1e3%", "9" * 400 + "%"]
ORDERS = ["1, 2, 3, 4, 5", "5, 4, 3, 2, 1", "2 1 3 4 5", "1,2,3", "The order is: 3, 1, 2, 5, 4.", "1, 2, 3, 4, 5, 6", "", "1-2-3-4-5", "12345",
          "1, 1, 3, 4, 5", "Summary 2, Summary 1, Summary 3, Summary 5, Summary 4", "1\n2\n3\n5\n4", "١, 2"]


class Ids(numpy.ndarray):
    def to(self, device):
        return self


class Tokenizer(WordTokens):
    def __call__(self, text, return_tensors):
        return types.SimpleNamespace(input_ids=numpy.array([self.encode(text)]).view(Ids))


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def prompts():
    official = module_of(CHECKOUTS / "zero_scrolls/experiments/hf/run_hf_model.py", ["torch", "datasets", "fire", "transformers"],
                         [("os.path.abspath(__file__)", "''")])
    official.torch = types.SimpleNamespace(cat=lambda parts, dim: numpy.concatenate(parts, axis=dim))
    tokens, found = Tokenizer(), {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-B", HERE / "../../datasets/samples/make.py", folder], check=True)
        for task in official.datasets:
            text = pathlib.Path(folder, "zero_scrolls", task, "validation.jsonl").read_text(encoding="utf-8")
            rows = {}
            for row in map(json.loads, text.split("\n")[:-1]):
                rows.setdefault(row["id"], row)
            found[task] = [[digest(tokens.decode(official.process_model_input(tokens, row, limit, "cpu")[0])) for limit in (10**9, LIMIT)]
                           for row in rows.values()]
    return found


def rouge():
    source = CHECKOUTS / "LEval/Evaluation"
    sys.modules["rouge"] = module_of(source / "rouge.py", edits=[("nltk.sent_tokenize(text)", "[text]")])
    return module_of(source / "auto_eval.py", ["em", "f1", "datasets"],
                     [("from Baselines.LEval_config import *\n", ""), ("os.path.dirname(__file__)", "''"),
                      ("super().__init__(*args, **kwargs)", "self.config_name = args[0]")])


def mixed(rng, reference):
    words = [word if rng.random() < 0.7 else rng.choice(WORDS) for word in reference[:rng.randint(0, 30)]]
    return " ".join(words + rng.choices(WORDS, k=rng.choice([0, 0, 3, 20])))


def scores():
    official = module_of(CHECKOUTS / "zero_scrolls_metrics.py")
    summaries = rouge()
    helper = summaries.LEvalMetrics("rouge")._compute_helper_kwargs_fn["rouge"]
    rng = random.Random("zero_scrolls")
    for _ in range(60):
        references = [rng.choices(WORDS, k=rng.randint(1, 30)) for _ in range(rng.choice([1, 1, 2]))]
        said, wanted = mixed(rng, references[0]), [" ".join(each) for each in references]
        yield "qasper", said, wanted, official.compute_f1([said], [wanted]) / 100
        values = summaries._compute_helper([said], [wanted], **helper())
        yield "squality", said, wanted, [values[key] / 100 for key in ("geometric_mean", "rouge1", "rouge2", "rougeL")]
    for task, compute, said, wanted in (("quality", official.compute_accuracy, LETTERS, ["(B)", "A", "D"]),
                                        ("space_digest", official.compute_exp_similarity, PERCENTAGES, ["40%", "37.5%"]),
                                        ("book_sum_sort", official.compute_concordance_index, ORDERS, [ORDERS[0], "3, 1, 2, 5, 4"])):
        for reference in wanted:
            for each in said:
                yield task, each, [reference], float(compute([each], [[reference]])) / 100
    letters = "".join(map(chr, range(0xDF, 0x180)))
    for letter in letters:
        if letter.islower():
            plain = official.unidecode(letter)
            yield "qasper", letter, [plain], official.compute_f1([letter], [[plain]]) / 100


def main():
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in scores())
    pathlib.Path(__file__).with_suffix(".json").write_text(
        '{"limit": %d,\n"prompts": %s,\n"scores": [\n%s]}\n' % (LIMIT, json.dumps(prompts()), lines), encoding="utf-8")


main()
