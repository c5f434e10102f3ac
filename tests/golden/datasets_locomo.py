#!/usr/bin/env python3
"""datasets_locomo.py LOCOMO: writes datasets_locomo.json, the first 12 digits of the SHA-256 of prompts of project-made rows
of LoCoMo by category, and scores of answers.

LOCOMO is a checkout of snap-research/locomo @3eb6f2c. Its task_eval/gpt_utils.py asks one question a request here, of a model
with room for all of the conversation; instead of answering, a request is kept. Names and the order of two options are drawn
there and given here: speaker_a first, and options in turns. `answer` of an adversarial question is its adversarial_answer,
as the code wants it. Its task_eval/evaluation.py scores, with nltk 3.10.4; regex and numpy besides.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import types

from authors_code import module_of

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(sys.argv[1]) / "task_eval"
STUBS = ["tqdm", "global_methods", "task_eval", "task_eval.rag_utils", "tiktoken"]
EDITS = [("sys.path.insert(0, str(Path(__file__).parent.parent))", ""),
         ("list(set([d['speaker'] for d in in_data['conversation']['session_1']]))",
          "[in_data['conversation']['speaker_a'], in_data['conversation']['speaker_b']]")]
CATEGORIES = {1: "multi_hop", 2: "temporal", 3: "open_domain", 4: "single_hop", 5: "adversarial"}
ANSWERS = [
    "a guitar, the piano and drums", "Piano, guitars", "guitar", "7 May 2023", "May 7th, 2023", "In 2022.", "2022", "Likely no",
    "Likely no; she prefers running", "No, since she's not interested", "She was running to the store", "An apple and a pear.", "",
    " ", "the", "naïve cafés – Zoë’s café", "(a)", "a", "B", "(b)", "b.", "c", "Not mentioned in the conversation",
    "It is not mentioned.", "No information available", "not  mentioned", "ponies, flies, dying", "pony, fly, die", "A,B,,C",
    "self-caring relatives' organizations", "self caring relative organization", "3,000 dollars", "3000 dollar", "AND", "Running; jumping"]
PAIRS = [(said, wanted) for i, wanted in enumerate(ANSWERS) for said in ANSWERS[i % 2::2]]


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def prompts_of(row, category):
    official = module_of(SOURCE / "gpt_utils.py", STUBS, EDITS)
    asked, drawn = [], iter(range(10**6))

    def keep(query, **_):
        asked.append(query)
        return "x"
    official.run_chatgpt = keep
    official.tqdm = lambda numbers, desc: numbers
    official.time = types.SimpleNamespace(sleep=lambda seconds: None)
    official.tiktoken = types.SimpleNamespace(encoding_for_model=lambda name: types.SimpleNamespace(encode=list))
    official.MAX_LENGTH = {"gpt-4-turbo": 10**9}
    official.random = types.SimpleNamespace(random=lambda: 0 if next(drawn) % 2 == 0 else 1)
    qa = [{**each, "answer": each.get("adversarial_answer", each.get("answer"))} for each in row["qa"] if each["category"] == category]
    args = types.SimpleNamespace(model="gpt-4-turbo", use_rag=False, batch_size=1, overwrite=False)
    official.get_gpt_answers({**row, "qa": qa}, {"qa": [dict(each) for each in qa]}, "prediction", args)
    return asked


def score(official, choose, said, wanted, category, options):
    said = said.strip()
    if category == 5:
        said = choose(said, options).strip()
    line = {"answer": wanted, "category": category, "prediction": said, "evidence": []}
    return float(official.eval_question_answering([line])[0][0])


def main():
    with tempfile.TemporaryDirectory() as folder:
        samples = pathlib.Path(folder)
        subprocess.run([sys.executable, "-B", HERE / "../../datasets/samples/make.py", samples], check=True)
        rows = json.loads((samples / "locomo/locomo10.json").read_text())
    prompts = {name: [digest(prompt) for row in rows for prompt in prompts_of(row, number)] for number, name in CATEGORIES.items()}
    official = module_of(SOURCE / "evaluation.py", ["bert_score"])
    choose = module_of(SOURCE / "gpt_utils.py", STUBS, EDITS).get_cat_5_answer
    options = {"a": "Not mentioned in the conversation", "b": "On a boat"}
    asked = [(1, said, wanted) for said, wanted in PAIRS] + [(2 + i % 3, said, wanted) for i, (said, wanted) in enumerate(PAIRS)]
    asked += [(5, said, "On a boat") for said in ANSWERS]
    scores = [[category, said, wanted, score(official, choose, said, wanted, category, options)] for category, said, wanted in asked]
    text = ",\n".join(json.dumps(each, ensure_ascii=False) for each in scores)
    pathlib.Path(__file__).with_suffix(".json").write_text(
        '{"options": %s,\n"prompts": %s,\n"scores": [\n%s]}\n' % (json.dumps(options), json.dumps(prompts), text))


main()
