#!/usr/bin/env python3
"""Writes datasets_bfcl.json: the SHA-256 of the first prompt to each project-made row, and conversations about those of several
turns, each with its answers, the SHA-256 of its messages up to the last answer and the verdict, by BFCL's own runner and
evaluation (pip install bfcl-eval==2026.3.23 soundfile; PYTHONHASHSEED=0). Of a memory a row is a user: the answers of all days and
questions, the messages of each, and a verdict a question.

    datasets_bfcl.py ENCODER SAMPLES      SAMPLES: the folder that datasets/samples/make.py wrote; ENCODER: that of all-MiniLM-L6-v2
    datasets_bfcl.py ENCODER --official FILE      the same of all official rows, for a test that reads the file which
                                                  KVARENA_BFCL_CONVERSATIONS names
"""

import contextlib
import copy
import hashlib
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
from types import SimpleNamespace

import sentence_transformers

os.environ["BFCL_PROJECT_ROOT"] = tempfile.mkdtemp()
LOAD = sentence_transformers.SentenceTransformer
sentence_transformers.SentenceTransformer = lambda name, device: LOAD(sys.argv[1], device=device)

from bfcl_eval import _llm_response_generation as generation  # noqa: E402
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


MEMORIES = ("memory_kv", "memory_rec_sum", "memory_vector")
ROOM = 2500  # bytes, of rows that have one
DAYS = {  # answers to the n-th text of a user's days
    "memory_kv": {
        "core": lambda n, text: [f"[core_memory_add(key='note_{n}', value={text!r})]"],
        "archive": lambda n, text: [f"[archival_memory_add(key='note_{n}', value={text!r})]", "[archival_memory_list_keys()]"],
        "both": lambda n, text: [f"[core_memory_add(key='a_{n}', value={text[:30]!r}), archival_memory_add(key='b_{n}', value={text!r}), "
                                 f"core_memory_add(key='c_{n}', value='{n}'), core_memory_retrieve(key='a_1')]"],
        "changed": lambda n, text: [f"[core_memory_add(key='last', value={text!r})]", f"[core_memory_replace(key='last', value={text!r})]"],
        "refused": lambda n, text: [f"[core_memory_add(key='A key', value={text!r}), core_memory_remove(key='none')]",
                                    f"[archival_memory_add(key='long', value='{'long ' * (500 if n == 2 else 1)}'), core_memory_add(key='n', value={n})]"],
        "malformed": lambda n, text: [f"core_memory_add(key='note_{n}', value={text!r}), core_memory_list_keys()" if n % 2 else
                                      f"[core_memory_add(key='note_{n}', value={text!r}"],
        "never ends": lambda n, text: [f"[core_memory_add(key='note_{n}_{k}', value='{k}')]" for k in range(30 if n == 4 else n)],
        "forgotten": lambda n, text: [f"[core_memory_add(key='note_{n}', value={text!r})]", "[core_memory_clear()]" if n == 3 else "[]"]},
    "memory_rec_sum": {
        "appended": lambda n, text: [f"[memory_append(text={text!r})]"],
        "replaced": lambda n, text: [f"[memory_update(text={text!r})]", "[memory_replace(old_text='e', new_text='E')]"],
        "cleared": lambda n, text: [f"[memory_append(text={text!r}), memory_retrieve()]", "[memory_clear()]" if n == 3 else "[]"],
        "too long": lambda n, text: [f"[memory_append(text='{'long ' * (2001 if n == 2 else n)}')]", f"[memory_append(text={n})]"],
        "malformed": lambda n, text: [f"```\n[memory_append(text={text!r})]\n```" if n % 2 else f"[memory_append(text={text!r})"],
        "never ends": lambda n, text: [f"[memory_append(text='{n}.')]"] * (30 if n == 4 else n)},
    "memory_vector": {  # without likenesses, whose last digits are a machine's
        "core": lambda n, text: [f"[core_memory_add(text={text!r})]"],
        "archive": lambda n, text: [f"[archival_memory_add(text={text!r})]", "[archival_memory_retrieve_all()]"],
        "both": lambda n, text: [f"[core_memory_add(text={text[:30]!r}), archival_memory_add(text={text!r}), "
                                 f"core_memory_update(vec_id=0, new_text='{n}')]"],
        "refused": lambda n, text: [f"[core_memory_remove(vec_id=7), core_memory_add(text='{'long ' * 80}')]",
                                    f"[archival_memory_retrieve(query=''), archival_memory_add(text={n})]"],
        "malformed": lambda n, text: [f"core_memory_add(text={text!r}), core_memory_retrieve_all()" if n % 2 else
                                      f"[core_memory_add(text={text!r}"],
        "full": lambda n, text: [f"[core_memory_add(text='{k}')]" for k in range(4)],
        "forgotten": lambda n, text: [f"[core_memory_add(text={text!r})]", "[core_memory_clear()]" if n == 3 else "[core_memory_remove(vec_id=0)]"]}}
LOOKS = {"memory_kv": "[core_memory_list_keys(), archival_memory_key_search(query='note fair')]", "memory_rec_sum": "[memory_retrieve()]",
         "memory_vector": "[core_memory_retrieve_all(), archival_memory_retrieve_all()]"}
QUESTIONS = {  # answers to a question with that accepted text, behind a look into the memory
    "right": lambda accepted: [f"{{'answer': '{accepted}', 'context': 'You said so.'}}"],
    "other form": lambda accepted: [f"I think, {accepted.upper()[:3]}-{accepted.upper()[3:]} (of course)."],
    "part of a word": lambda accepted: [f"{{'answer': 'x{accepted}', 'context': ''}}"],
    "unknown": lambda accepted: ["{'answer': 'I do not know', 'context': 'I do not know'}"],
    "nothing": lambda accepted: [""],
    "as a call": lambda accepted: [f"[memory_note(text={accepted!r})]"] * 30,
    "empty list": lambda accepted: ["[]"]}


class ScriptedClient:
    """A client that gives answers which were written before, and DONE when there are no more. With `room` it refuses messages
    that take more bytes behind the first answer, or in a longer first prompt. With `by_text` a text begins its own answers."""

    def __init__(self, answers, by_text=None, room=None):
        self.left, self.given, self.messages, self.contexts = list(answers), [], [], []
        self.by_text, self.room, self.first_prompt = by_text or {}, room, None
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create))

    def require_room(self, messages):
        lengths = [16 + len((m["content"] if isinstance(m, dict) else m.content).encode()) for m in messages]
        prompt = next((n for n, m in enumerate(messages) if not isinstance(m, dict)), len(messages))
        self.first_prompt = self.first_prompt or sum(lengths[:prompt])
        behind = 512 + sum(lengths[prompt + 1:]) if prompt < len(messages) else 0
        if sum(lengths[:prompt]) - self.first_prompt + behind > self.room:
            raise RuntimeError("the window is full")

    def create(self, messages, **_):
        if self.room:
            self.require_room(messages)
        if self.messages is not messages:
            self.contexts.append(messages)
        self.messages = messages
        if isinstance(messages[-1], dict):
            self.left = list(self.by_text.get(messages[-1]["content"], self.left))
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


def scripted(category, day, looks, days, questions, kinds):
    """Answers by text: to a user's days, and to questions, given with what is accepted."""
    texts = [turn[0]["content"] for entry in days for turn in entry["question"]]
    answers = {text: DAYS[category][day](n, text) for n, text in enumerate(texts, 1)}
    for text, accepted in questions:
        answers[text] = [LOOKS[category]] * looks + QUESTIONS[next(kinds)](accepted[0])
    return answers


def remember(category, scenario, day, kinds, looks, room=None):
    """A user's days and questions by the package's runner, in its order, and its evaluation."""
    entries = [e for e in utils.load_dataset_entry(category) if e["scenario"] == scenario]
    truth = {a["id"].replace("memory", category): a["ground_truth"] for a in utils.load_ground_truth_entry(category)}
    entries.sort(key=utils.sort_key)
    days, asked = [e for e in entries if utils.is_memory_prereq(e["id"])], [e for e in entries if e["id"] in truth]
    handler = new_handler()
    questions = [(e["question"][0][-1]["content"], truth[e["id"]]) for e in asked]
    handler.client = ScriptedClient([], scripted(category, day, looks, days, questions, kinds), room)
    folder = pathlib.Path(tempfile.mkdtemp())
    utils.populate_initial_settings_for_memory_test_cases(entries, folder)
    verdicts = []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for entry in days + asked:
            result = generation.multi_threaded_inference(handler, entry, False, True)["result"]
            if entry["id"] in truth:
                found = eval_runner._evaluate_single_agentic_entry(handler, entry["id"], result, truth[entry["id"]], entry,
                                                                   "scripted", category)
                verdicts.append([entry["id"], found["valid"], found.get("error", {}).get("error_type", "")])
    for name in [name for name in vars(multi_turn_utils) if name.startswith("scripted")]:
        delattr(multi_turn_utils, name)
    shutil.rmtree(folder)
    contexts = [messages[:max(n for n, m in enumerate(messages) if not isinstance(m, dict)) + 1] for messages in handler.client.contexts]
    first = contexts[0]
    return {"id": f"{category}-{scenario}", "script": day, "room": room or 1_000_000, "answers": handler.client.given,
            "prompt": digest(first[:next(n for n, m in enumerate(first) if not isinstance(m, dict))]),
            "contexts": [digest(messages) for messages in contexts], "questions": verdicts}


def memory_rows():
    kinds = itertools.cycle(QUESTIONS)
    for category in MEMORIES:
        days = itertools.cycle(DAYS[category])
        for scenario in ("student", "customer", "finance", "healthcare", "notetaker"):
            yield remember(category, scenario, next(days), kinds, looks=False)
            yield remember(category, scenario, next(days), kinds, looks=True, room=None if scenario == "student" else ROOM)


def rows():
    yield from memory_rows()
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
    if sys.argv[2] == "--official":
        path = pathlib.Path(sys.argv[3])
    else:
        path = pathlib.Path(__file__).with_suffix(".json")
        folder = pathlib.Path(sys.argv[2]) / "bfcl"
        utils.PROMPT_PATH, utils.POSSIBLE_ANSWER_PATH = folder, folder / "possible_answer"
        utils.MULTI_TURN_FUNC_DOC_PATH = folder / "multi_turn_func_doc"
        utils.MEMORY_PREREQ_CONVERSATION_PATH = folder / "memory_prereq_conversation"
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows()) + "\n]\n")


main()
