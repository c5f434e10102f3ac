#!/usr/bin/env python3
"""metrics_scbench.py FOLDER: writes metrics_scbench.json, answers to SCBench and what its compute_scores.py finds of them.

FOLDER has checkouts by their own names: microsoft/MInference @fb56c91 and huggingface/evaluate v0.4.6. CPython 3.11 with

    pip install evaluate==0.4.6 rouge_score==0.1.2 nltk==3.9.1 tree_sitter==0.21.3 tree_sitter_languages==1.10.2 rich

Functions are those of the project-made repositories of datasets/samples.
"""

import contextlib
import io
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import warnings

import evaluate

from authors_code import module_of

warnings.filterwarnings("ignore")
HERE = pathlib.Path(__file__).resolve().parent
CHECKOUTS = pathlib.Path(sys.argv[1])
OPTIONS = ["Maria Holt", "Peter Cole", "Anna Reed", "David Frost"]
WORDS = ["A", "B.", "The", "the answer is:", "answer:", "option is C", "17", "12.5", "0", "42", "abc-1", "ABCDE", "FGHIJ", "Maria", "Holt",
         "maria holt", "Peter Cole", "青石镇", "李明", "由", "。", "71432", "\n", "VAR", "{", "}", '"', "In Elmford the dairy employs 71 people."]
LABELS = {"kv": ["abc-1", "71432"], "prefix_suffix": ["abc-1"], "vt": [["ABCDE", "FGHIJ", "KLMNO"], ["ABCDE"], ["17", "42", "x"]],
          "qa_eng": [["Maria Holt"], ["42"]], "qa_chn": ["李明", "青石镇李明"], "choice_eng": [[OPTIONS[0], "A"], [OPTIONS[1], "B"]],
          "many_shot": ["A", "(B)", "no"], "mf": [17, 12, 42, 12.5], "passkey": ["71432"],
          "summary": ["In Elmford the dairy employs 71 people.\nMaria Holt leads the school."]}


def officials():
    load = evaluate.load
    evaluate.load = lambda name: load(str(CHECKOUTS / "evaluate/metrics" / name))
    scbench = CHECKOUTS / "MInference/scbench"
    repoqa = module_of(scbench / "repo_qa_utils.py", ["tempdir", "transformers"])
    sys.modules["repo_qa_utils"] = repoqa
    return module_of(scbench / "compute_scores.py", ["args"]), repoqa


def text_rows(official, rng):
    for task, labels in LABELS.items():
        name = {"passkey": "scbench_passkey"}.get(task, f"scbench_{task}")
        name = official.Multiturnbench_to_Infinitebench.get(name, name)
        for _ in range(24):
            label = rng.choice(labels)
            parts = rng.choices(WORDS, k=rng.randint(0, 5))
            if rng.random() < 0.5:
                parts.insert(rng.randint(0, len(parts)), str(rng.choice(label) if isinstance(label, list) else label))
            prediction = " ".join(parts)
            yield {"task": task, "prediction": prediction, "label": label,
                   "score": official.get_score_one(prediction, label, name, "generic")}


KEYWORDS = set("""def for in if not or return sum len public static double new let const of export function number fn pub mut is_empty else
    while func range float64 vector std size static_cast List Math import package""".split())


def changed(rng, code, name):
    """A function as a model might repeat it: with other names in it and another number; it still parses, for what
    tree-sitter makes of broken code is beyond a scorer without its grammars."""
    words = sorted(set(re.findall(r"(?<!\.)\b[a-z]\w+\b(?![(.<])", code)) - KEYWORDS - {name})
    for number in range(rng.choice([0, 0, 1, 2, 4])):
        code = re.sub(rf"\b{rng.choice(words)}\b", f"value{number}", code)
    return code if rng.random() < 0.7 else re.sub(r"\b0\b", "1", code)


def wrapped(rng, codes, language):
    fence = rng.choice(["```", f"```{language}"])
    block = "\n\n".join(codes)
    if language == "python" and rng.random() < 0.4:
        block = rng.choice(["import math\n\nLIMIT = 3\n\n\n@cache\n", "class Store:\n    x = 1\n\n"]) + block + "\n\n# The end.\nprint(1)\n"
    if language == "cpp" and rng.random() < 0.4:
        block = "#include <vector>\nstruct Box {\n  int size() const { return 1; }\n};\nint* none() { return nullptr; }\n" + block
    if language == "java" and rng.random() < 0.4:
        block = "public class Store {\n    private int x = 1;\n    @Override\n" + block + "\n}"
    if language in ("rust", "typescript", "go") and rng.random() < 0.4:
        block = "// Here it is: { \n" + block + "\n// }"
    return rng.choice(["", "Sure. Here it is:\n\n", "  \n"]) + f"{fence}\n{block}\n```" + rng.choice(["", "\n", "\nIt adds."])


def made_repositories():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-B", HERE / "../../datasets/samples/make.py", folder], check=True)
        return [json.loads(line) for line in open(f"{folder}/scbench/scbench_repoqa.jsonl", encoding="utf-8")]


def functions_of(row):
    return [{"needle": turn["answer"], "name": turn["name"]} for turn in row["multi_turns"]]


def repoqa_rows(repoqa, repositories, rng):
    for number in range(120):
        row = repositories[number % len(repositories)]
        asked, other = rng.sample(row["multi_turns"], 2)
        chosen = rng.choice([asked, asked, asked, other])
        code = changed(rng, chosen["answer"], chosen["name"])
        prediction = rng.choice([
            lambda: code, lambda: wrapped(rng, [code], row["lang"]), lambda: wrapped(rng, [code, other["answer"]], row["lang"]),
            lambda: "```\nno code at all\n```\n" + wrapped(rng, [code], row["lang"]), lambda: f"```\n{code}"])()
        case = {"lang": row["lang"], "repo": row["repo"], "prediction": prediction, "func_name": asked["name"],
                "ground_truth": asked["answer"]}
        with contextlib.redirect_stdout(io.StringIO()):
            scores = repoqa.compute_score("m", [case], [asked["answer"]], {row["repo"]: functions_of(row)})["m"]["scores"]["all"]
        yield {"task": "repoqa", "prediction": prediction, "language": row["lang"], "name": asked["name"],
               "code": repoqa.sanitize_output(prediction, row["lang"]), "score": scores[0.8]["pass@1"]}


def main():
    official, repoqa = officials()
    rng, repositories = random.Random("scbench"), made_repositories()
    rows = [*text_rows(official, rng), *repoqa_rows(repoqa, repositories, rng)]
    text = '{"functions": ' + json.dumps({row["lang"]: functions_of(row) for row in repositories}) + ',\n"answers": [\n'
    text += ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]}\n"
    pathlib.Path(__file__).with_suffix(".json").write_text(text, encoding="utf-8")


main()
