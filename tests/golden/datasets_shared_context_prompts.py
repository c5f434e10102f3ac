#!/usr/bin/env python3
"""datasets_shared_context_prompts.py FOLDER: writes datasets_shared_context_prompts.json, the first 12 digits of the SHA-256
of the prompt of every project-made row of InfiniteBench, SCBench and LooGLE, rendered by the official code, and of its label.

FOLDER has checkouts by their own names: OpenBMB/InfiniteBench @88b3daa6, microsoft/MInference @fb56c91 and
bigai-nlco/LooGLE @6734382. A prompt of SCBench's multi-turn mode is the conversation up to the turn, in a chat template of <role>...</role>; the blank that
stands behind "This paper" where an answer follows it is the project's.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

from authors_code import module_of

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUTS = pathlib.Path(sys.argv[1])


class Chat:
    @staticmethod
    def apply_chat_template(messages, add_generation_prompt, tokenize):
        text = "".join(f"<{each['role']}>{each['content']}</{each['role']}>" for each in messages)
        return text + ("<assistant>" if add_generation_prompt else "")


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def rows_of(path):
    return [json.loads(line) for line in open(path, encoding="utf-8")]


def infinitebench(samples):
    source = CHECKOUTS / "InfiniteBench/src"
    sys.modules["prompt"] = module_of(source / "prompt.py")
    official = module_of(source / "eval_utils.py", ["rouge", "jieba"])
    return {path.stem: [[digest(official.create_prompt(row, path.stem, "yarn-mistral", "")),
                         digest(json.dumps(official.get_answer(row, path.stem), ensure_ascii=False, separators=(",", ":")))]
                        for row in rows_of(path)] for path in sorted((samples / "infinitebench").iterdir())}


def conversation(prompts, last):
    text = ""
    for prompt in prompts[:last + 1]:
        text += (" " if text.endswith("This paper") else "") + prompt
    return text


def scbench(samples):
    official = module_of(CHECKOUTS / "MInference/scbench/eval_utils.py", ["jieba", "torch", "torch.profiler", "rouge", "transformers"])
    found = {}
    for path in sorted((samples / "scbench").iterdir()):
        for row in rows_of(path):
            one = official.create_scdq_prompt(row, path.stem, None, False)["prompts"]
            many = official.create_multiturn_prompt(row, path.stem, Chat, True)["prompts"]
            labels = official.get_ground_truth(row, path.stem)
            found.setdefault(path.stem.removeprefix("scbench_"), []).extend(
                [digest(one[0] + one[turn + 1]), digest(conversation(many, turn)),
                 digest(json.dumps(label, ensure_ascii=False, separators=(",", ":")))] for turn, label in enumerate(labels))
    return found


def loogle(samples):
    forms = json.load(open(CHECKOUTS / "LooGLE/config/task2prompt.json", encoding="utf-8"))
    found = {}
    for path in sorted((samples / "loogle").iterdir()):
        for row in rows_of(path):
            for pair in [{"Q": "", "A": row["output"]}] if row["qa_pairs"] == "none" else row["qa_pairs"]:
                found.setdefault(path.stem, []).append([digest(forms[path.stem].format(Q=pair["Q"], input=row["input"]))])
    return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        samples = pathlib.Path(folder)
        subprocess.run([sys.executable, "-B", HERE / "../../datasets/samples/make.py", samples], check=True)
        found = {"infinitebench": infinitebench(samples), "scbench": scbench(samples), "loogle": loogle(samples)}
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(found).replace("]], ", "]],\n") + "\n")


main()
