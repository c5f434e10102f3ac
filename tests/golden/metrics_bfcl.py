#!/usr/bin/env python3
"""Writes metrics_bfcl.jsonl: answers to the first project-made row of each live category and BFCL's own verdicts (pip install
bfcl-eval==2026.3.23).

    metrics_bfcl.py SAMPLES      SAMPLES: the folder that datasets/samples/make.py wrote
    metrics_bfcl.py --official FILE      answers to all official rows of one turn, for `kvarena score --vectors FILE`
"""

import copy
import json
import os
import pathlib
import sys
import tempfile

os.environ.update(BFCL_PROJECT_ROOT=tempfile.mkdtemp(), OPENAI_API_KEY="none")

from bfcl_eval import utils  # noqa: E402
from bfcl_eval.constants.enums import Language, ReturnFormat  # noqa: E402
from bfcl_eval.eval_checker import eval_runner  # noqa: E402

MODEL = "gpt-4o-2024-11-20"  # one whose calls the package takes as they are
LIVE = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance", "live_relevance")
ONE_TURN = ("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance", *LIVE)


def written(value):
    """An accepted value as a call has it: of those for each member the first."""
    if isinstance(value, dict):
        return {key: written(inner[0] if isinstance(inner, list) else inner) for key, inner in value.items()}
    return [written(inner) for inner in value] if isinstance(value, list) else value


def calls_of(truth):
    """The right calls, as name and arguments; a value that may be left out is."""
    return [(name, {key: written(accepted[0]) for key, accepted in arguments.items() if accepted and accepted[0] != ""})
            for call in truth for name, arguments in call.items()]


def text(calls):
    return "[" + ", ".join(f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})" for name, given in calls) + "]"


def changed(calls, change):
    """The calls, the last with other arguments."""
    calls = copy.deepcopy(calls)
    if calls:
        change(calls[-1][1])
    return calls


def answers_to(calls):
    names = lambda given: list(given)[-1:]
    yield text(calls)
    yield text(calls[::-1])
    yield text(calls[:-1])
    yield text(calls + calls[:1])
    yield text(changed(calls, lambda given: [given.pop(key) for key in names(given)]))
    yield text(changed(calls, lambda given: given.update({key: "something else" for key in names(given)})))
    yield text(changed(calls, lambda given: given.update({key: [given[key]] for key in names(given)})))
    yield text(changed(calls, lambda given: given.update({key: str(given[key]).upper() for key in names(given)})))
    yield text(changed(calls, lambda given: given.update(nothing=1)))
    yield text([("other_" + name, given) for name, given in calls])
    yield "No function fits."


def verdict(handler, entry, truth, category, answer):
    entry = copy.deepcopy(entry)
    if "relevance" in category:
        return eval_runner._evaluate_single_relevance_entry(handler, entry["id"], answer, entry, MODEL, category)
    return eval_runner._evaluate_single_ast_entry(handler, entry["id"], answer, truth, entry, MODEL, category, Language.PYTHON,
                                                  ReturnFormat.PYTHON)


def rows(categories, most=None):
    handler = eval_runner.get_handler(MODEL)
    for category in categories:
        entries = utils.load_dataset_entry(category, include_language_specific_hint=False)
        relevance = "relevance" in category
        truths = [[] for _ in entries] if relevance else [a["ground_truth"] for a in utils.load_ground_truth_entry(category)]
        for entry, truth in list(zip(entries, truths))[:most]:
            calls = [("anything", {"a": 1})] if relevance else calls_of(truth)
            for n, answer in enumerate(dict.fromkeys(answers_to(calls))):
                found = verdict(handler, entry, truth, category, answer)
                yield {"id": f"{entry['id']}, {n}", "metric": "bfcl_ast", "category": category.replace("simple_python", "simple"),
                       "function": entry["function"], "ground_truth": truth, "model_output": answer,
                       "expected": {"valid": found["valid"], "error_type": found.get("error_type")}}


def main():
    if sys.argv[1] == "--official":
        path, made = pathlib.Path(sys.argv[2]), rows(ONE_TURN)
    else:
        folder = pathlib.Path(sys.argv[1]) / "bfcl"
        utils.PROMPT_PATH, utils.POSSIBLE_ANSWER_PATH = folder, folder / "possible_answer"
        path, made = pathlib.Path(__file__).with_suffix(".jsonl"), rows(LIVE, most=1)
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in made)


main()
