#!/usr/bin/env python3
"""Writes datasets_bfcl.json: the SHA-256 of the first prompt to each project-made row, and conversations about those of several
turns, each with its answers, the SHA-256 of its messages up to the last answer and the verdict, by BFCL's own runner and
evaluation (pip install bfcl-eval==2026.3.23; PYTHONHASHSEED=0).

    datasets_bfcl.py SAMPLES      SAMPLES: the folder that datasets/samples/make.py wrote
    datasets_bfcl.py --official FILE      the same of all official rows, for a test that reads the file which
                                          KVARENA_BFCL_CONVERSATIONS names
"""

import contextlib
import copy
import hashlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
from types import SimpleNamespace

os.environ["BFCL_PROJECT_ROOT"] = tempfile.mkdtemp()

from bfcl_eval import utils  # noqa: E402
from bfcl_eval.eval_checker import eval_runner  # noqa: E402
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils  # noqa: E402
from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler  # noqa: E402

ONE_TURN = ("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance", "live_simple", "live_multiple",
            "live_parallel", "live_parallel_multiple", "live_irrelevance", "live_relevance")
CATEGORIES = ("base", "long_context", "miss_func", "miss_param")
SCRIPTS_OF_A_ROW = 4
DONE = "That is all."


def listed(calls):
    return f"[{', '.join(calls)}]"


def turns_with(answers):
    """A script that answers each turn which has right calls by `answers` of them."""
    return lambda turns: [answer for calls in turns for answer in ([*answers(calls), DONE] if calls else [DONE])]


def last_call_of(turns, change):
    """The right calls, of which the last is changed."""
    turns = copy.deepcopy(turns)
    last = max(n for n, calls in enumerate(turns) if calls)
    turns[last][-1:] = change(turns[last][-1])
    return [answer for calls in turns for answer in ([listed(calls), DONE] if calls else [DONE])]


def eager(turns):
    """Calls before what they need was said."""
    return [answer for n, calls in enumerate(turns) for answer in (listed(calls or turns[min(n + 1, len(turns) - 1)]), DONE)]


SCRIPTS = {
    "together": turns_with(lambda calls: [listed(calls)]),
    "one by one": turns_with(lambda calls: [listed([call]) for call in calls]),
    "fenced": turns_with(lambda calls: [f"```\n{listed(calls)}\n```"]),
    "without brackets": turns_with(lambda calls: [", ".join(calls)]),
    "in quotes": turns_with(lambda calls: [f"'{listed(calls)}'"]),
    "reversed": turns_with(lambda calls: [listed(calls[::-1])]),
    "twice": turns_with(lambda calls: [listed(calls), listed(calls)]),
    "without names": turns_with(lambda calls: [listed([re.sub(r"\b\w+=", "", call) for call in calls])]),
    "numbers as text": turns_with(lambda calls: [listed([re.sub(r"=(\d+)\b", r"='\1'", call) for call in calls])]),
    "last call missing": lambda turns: last_call_of(turns, lambda call: []),
    "last call changed": lambda turns: last_call_of(turns, lambda call: [re.sub(r"='\w", "='Q", call)]),
    "last call unknown": lambda turns: last_call_of(turns, lambda call: ["nothing_" + call]),
    "sum as a value": lambda turns: last_call_of(turns, lambda call: [re.sub(r"=(\d+)\b", r"=\1 + 0", call)]),
    "refused call first": turns_with(lambda calls: ["[exit(code=3)]", "[absent.module(x=[1, {'a': (2, None)}])]", listed(calls)]),
    "prose": turns_with(lambda calls: [f"I will call {calls[0]}."]),
    "unclosed": turns_with(lambda calls: [listed(calls)[:-2]]),
    "silent at last": lambda turns: turns_with(lambda calls: [listed(calls)])(turns[:-1]),
    "empty list": turns_with(lambda calls: ["[]"]),
    "never ends": lambda turns: [listed(next(calls for calls in turns if calls))] * 30,
    "eager": eager,
}


class ScriptedClient:
    """A client that gives answers which were written before, and DONE when there are no more."""

    def __init__(self, answers):
        self.left, self.given, self.messages = list(answers), [], []
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create))

    def create(self, messages, **_):
        self.messages = messages
        self.given.append(self.left.pop(0) if self.left else DONE)
        message = SimpleNamespace(role="assistant", content=self.given[-1])
        return SimpleNamespace(choices=[SimpleNamespace(message=message)], usage=SimpleNamespace(prompt_tokens=0, completion_tokens=0))


def digest(messages):
    """SHA-256 of role and content of each message."""
    pairs = [[m["role"], m["content"]] if isinstance(m, dict) else [m.role, m.content] for m in messages]
    return hashlib.sha256(json.dumps(pairs, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def new_handler():
    os.environ["OPENAI_API_KEY"] = "none"
    return OpenAICompletionsHandler("scripted", 0, "scripted", is_fc_model=False)


def first_prompt(entry):
    """What the package's runner asks of a request that one answer ends."""
    new_handler()._pre_query_processing_prompting(entry)
    return {"id": entry["id"], "prompt": digest(entry["question"][0])}


def converse(entry, calls, script):
    """A conversation by the package's runner, and its evaluation."""
    handler = new_handler()
    handler.client = ScriptedClient(SCRIPTS[script](calls))
    entry = copy.deepcopy(entry)
    with contextlib.redirect_stdout(io.StringIO()):
        result, _ = handler.inference(entry, include_input_log=False, exclude_state_log=True)
        verdict = eval_runner._evaluate_single_multi_turn_entry(handler, entry["id"], result, calls, entry, "scripted",
                                                                entry["id"].rsplit("_", 1)[0])
    for name in [name for name in vars(multi_turn_utils) if name.startswith("scripted")]:
        delattr(multi_turn_utils, name)
    said = handler.client.messages
    answers = [n for n, message in enumerate(said) if not isinstance(message, dict)]
    return {"id": entry["id"], "script": script, "answers": handler.client.given, "prompt": digest(said[:answers[0]]),
            "messages": digest(said[:answers[-1] + 1]), "valid": verdict["valid"],
            "error": verdict.get("error", {}).get("error_type", "")}


def rows():
    for category in ONE_TURN:
        yield from map(first_prompt, utils.load_dataset_entry(category))
    names = list(SCRIPTS)
    for category in CATEGORIES:
        entries = utils.load_dataset_entry(f"multi_turn_{category}")
        answers = utils.load_ground_truth_entry(f"multi_turn_{category}")
        for n, (entry, answer) in enumerate(zip(entries, answers)):
            start = (SCRIPTS_OF_A_ROW * n + 6 * CATEGORIES.index(category)) % len(names)
            for script in (names + names)[start:start + SCRIPTS_OF_A_ROW]:
                yield converse(entry, answer["ground_truth"], script)


def main():
    if sys.argv[1] == "--official":
        path = pathlib.Path(sys.argv[2])
    else:
        path = pathlib.Path(__file__).with_suffix(".json")
        folder = pathlib.Path(sys.argv[1]) / "bfcl"
        utils.PROMPT_PATH, utils.POSSIBLE_ANSWER_PATH = folder, folder / "possible_answer"
        utils.MULTI_TURN_FUNC_DOC_PATH = folder / "multi_turn_func_doc"
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows()) + "\n]\n")


main()
