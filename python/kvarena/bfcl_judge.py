"""Carries out and judges BFCL's conversations by its authors' package (datasets/bfcl_judge.h has the messages).

    python3 bfcl_judge.py [ENCODER] CHANNEL      CHANNEL: a socket, by descriptor; ENCODER: the folder of a sentence encoder, for
                                                 memories of vectors

The package evaluates what a model writes: whatever would touch files, processes or the network is refused meanwhile.
"""

import copy
import io
import json
import os
import pathlib
import resource
import shutil
import socket
import sys
import tempfile
import warnings
from contextlib import contextmanager, redirect_stdout

sys.path.pop(0)  # this folder has modules of common names
MEMORY = 8 << 30  # bytes of addresses
READS = {"os.listdir", "os.scandir"}  # as an import does
GUARDED = ("os.", "subprocess.", "socket.", "shutil.", "ctypes.", "pty.", "signal.", "tempfile.", "urllib.", "http.")


def load_vectors(encoder):
    """Imports the package's memory of vectors, which would fetch its encoder by name, with one from a folder."""
    if not os.path.isdir(encoder):
        raise ImportError(f"no encoder in {encoder}, where scripts/setup puts it")
    import sentence_transformers
    import torch
    from transformers.utils import logging
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    load = sentence_transformers.SentenceTransformer
    sentence_transformers.SentenceTransformer = lambda name, device: load(encoder, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from bfcl_eval.eval_checker.multi_turn_eval.func_source_code import memory_vector
    memory_vector.ENCODER.encode(["what is loaded when it is first used"])
    return memory_vector


def imported():
    """The package's modules, which make folders for results when they are imported."""
    folder = tempfile.mkdtemp()
    os.environ["BFCL_PROJECT_ROOT"] = folder
    try:
        from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING
        from bfcl_eval.eval_checker.agentic_eval.agentic_checker import agentic_checker
        from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils
        from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler
        from bfcl_eval.model_handler.base_handler import BaseHandler
        for name, module in CLASS_FILE_PATH_MAPPING.items():
            if not name.startswith(("MemoryAPI_vector", "WebSearch")):
                __import__(module)
    finally:
        shutil.rmtree(folder)
    return BaseHandler, OpenAICompletionsHandler, multi_turn_checker.multi_turn_checker, multi_turn_utils, agentic_checker


class Snapshots:
    """What the package's memories would write into files, by name."""

    def __init__(self, encoder):
        from bfcl_eval.eval_checker.multi_turn_eval.func_source_code import memory_api_metaclass, memory_kv, memory_rec_sum
        self.files = {}
        for module in (memory_kv, memory_rec_sum, *([load_vectors(encoder)] if encoder else [])):
            module.open = self.open
        memory_api_metaclass.MemoryAPI._prepare_snapshot = lambda memory, config: self.prepare(memory, **config)

    def prepare(self, memory, test_id, scenario):
        """As MemoryAPI._prepare_snapshot, whose folders are the disk's."""
        memory.test_id, memory.scenario = test_id, scenario
        memory.snapshot_folder = pathlib.PurePath("prereq_checkpoints")
        memory.latest_snapshot_file = f"{scenario}_final.json"
        kept = self.files.get(memory.latest_snapshot_file)
        return None if test_id.endswith("-0") and "prereq" in test_id or kept is None else json.loads(kept)

    @contextmanager
    def open(self, name, mode):
        written = io.StringIO()
        yield written
        self.files[str(name)] = written.getvalue()


def refuse(event, arguments):
    """An audit hook: raises at what an answer must not do."""
    writes = event == "open" and (not isinstance(arguments[1], str) or set(arguments[1]) & set("wax+"))
    if writes or event.startswith(GUARDED) and event not in READS:
        raise PermissionError(f"{event} is not for answers to do")


class Unanswered(Exception):
    """The package's loop asks for an answer that is not there yet."""


class NoRoom(Exception):
    """A conversation has more tokens than there is room for."""


class Finished:
    """One of a memory's conversations that is over: its result, its answers, what it left, and those that came behind it."""

    def __init__(self, result, answers, files, first_prompt):
        self.result, self.answers, self.files, self.first_prompt = result, answers, files, first_prompt
        self.nexts = []


def make_judge(length, encoder):
    """A function that judges a task with answers. `length`: tokens of a message's text, with what a template puts around it.
    `encoder`: of memories of vectors, a folder; None where there are none."""
    base, completions, multi_turn_checker, utils, agentic_checker = imported()
    snapshots = Snapshots(encoder)
    tails = {}  # by user, conversations of a memory that are over

    class Replay(completions):
        """The package's handler of models without function calls of their own, with answers that are there already."""

        def __init__(self, name, answers, room, answer_tokens):
            base.__init__(self, name, 0, name, is_fc_model=False)
            self.answers, self.used = answers, 0
            self.room, self.answer_tokens, self.first_prompt = room, answer_tokens, None
            self.messages = []

        def _query_prompting(self, inference_data):
            self.messages = inference_data["message"]
            if self.taken() > self.room:
                raise NoRoom(f"more than {self.room} tokens behind the first answer")
            if self.used == len(self.answers):
                raise Unanswered
            self.used += 1
            return self.answers[self.used - 1], 0

        def taken(self):
            """Tokens behind the first answer of this context, and those by which its prompt is longer than the first one's."""
            lengths = [length(message["content"]) for message in self.messages]
            prompt = next((n for n, message in enumerate(self.messages) if message["role"] == "assistant"), len(lengths))
            if self.first_prompt is None:
                self.first_prompt = sum(lengths[:prompt])
            behind = self.answer_tokens + sum(lengths[prompt + 1:]) if prompt < len(lengths) else 0
            return sum(lengths[:prompt]) - self.first_prompt + behind

        def _parse_query_response_prompting(self, answer):
            return {"model_responses": answer, "input_token": 0, "output_token": 0,
                    "model_responses_message_for_chat_history": {"role": "assistant", "content": answer}}

        def result(self, entry):
            return self.inference(copy.deepcopy(entry), include_input_log=False, exclude_state_log=True)[0]

        def calls_of(self, answer):
            try:
                calls = self.decode_execute(answer, has_tool_call_tag=False)
            except Exception:  # as the package's evaluation does: an answer without calls
                return []
            return [] if utils.is_empty_execute_response(calls) else calls

        def multi_turn_verdict(self, entry, ground_truth, result):
            """As eval_runner.py's _evaluate_single_multi_turn_entry, which imports every vendor's client."""
            if len(result) != len(ground_truth):
                return {"valid": False, "error_type": "multi_turn:force_terminated"}
            calls = [[made for made in map(self.calls_of, turn) if made] for turn in result]
            return multi_turn_checker(calls, ground_truth, entry, entry["id"].rsplit("_", 1)[0], self.model_name)

        def agentic_verdict(self, accepted, result):
            """As its _evaluate_single_agentic_entry."""
            if not isinstance(result, list) or len(result) != 1:
                return {"valid": False, "error_type": "agentic:inference_error"}
            said = [answer for answer in result[0] if not self.calls_of(answer)]
            if not said or not said[-1]:
                return {"valid": False, "error_type": "agentic:no_last_message"}
            return agentic_checker(said[-1], accepted)

    def conversation(replay, entry, ground_truth):
        """The record of a conversation of many turns."""
        try:
            result = replay.result(entry)
        except NoRoom as refusal:
            return {"valid": False, "error": "multi_turn:inference_error", "result": str(refusal)}
        verdict = replay.multi_turn_verdict(entry, ground_truth, result)
        return {"valid": verdict["valid"], "error": verdict.get("error_type", ""), "result": result}

    def finished(replay, entry):
        """The end of one of a memory's conversations."""
        began = replay.used
        try:
            result = replay.result(entry)
        except Unanswered:
            raise
        except Exception as error:  # as the package's runner does, which goes on
            result = f"Error during inference: {error}"
        return Finished(result, replay.answers[began:replay.used], dict(snapshots.files), replay.first_prompt)

    def memory(replay, entries, function, ground_truth):
        """The record of a memory: conversations that fill it, one after another, and questions, each with what they left. Those
        that are over are not carried out again for each answer that follows."""
        snapshots.files = {}
        results, questions = {}, []
        nexts = tails.setdefault(json.dumps([entry["id"] for entry in entries]), [])
        for entry in entries:
            end = next((end for end in nexts if replay.answers[replay.used:][:len(end.answers)] == end.answers), None)
            if end is None:
                end = finished(replay, {**entry, "function": function})
                nexts.append(end)
            else:
                replay.used += len(end.answers)
                replay.first_prompt, snapshots.files = end.first_prompt, dict(end.files)
            results[entry["id"]], nexts = end.result, end.nexts
            if entry["id"] in ground_truth:
                verdict = replay.agentic_verdict(ground_truth[entry["id"]], end.result)
                questions.append({"id": entry["id"], "valid": verdict["valid"], "error": verdict.get("error_type", "")})
        return {"questions": questions, "result": results}

    def judge(task, answers):
        replay = Replay("replay", answers, task.pop("room"), task.pop("answer_tokens"))
        try:
            record = (memory if "entries" in task else conversation)(replay, **task)
        except Unanswered:
            return {"messages": replay.messages}
        finally:
            for name in [name for name in vars(utils) if name.startswith("replay_")]:
                delattr(utils, name)  # the classes' instances, which the package keeps under names of the model and the entry
        return {"record": record}

    return judge


def main():
    *encoder, descriptor = sys.argv[1:]
    channel = socket.socket(fileno=int(descriptor)).makefile("rw", encoding="utf-8", newline="\n")
    lengths = {}

    def say(message):
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    def length(text):
        if text not in lengths:
            say({"count": text})
            lengths[text] = json.loads(channel.readline())["tokens"]
        return lengths[text]

    try:
        judge = make_judge(length, encoder[0] if encoder else None)
    except ImportError as error:
        return say({"error": f"an import that fails: {error}"})
    say({"ready": True})
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.addaudithook(refuse)
    for line in channel:
        request = json.loads(line)
        try:
            with redirect_stdout(io.StringIO()):
                said = judge(**request)
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        say(said)


if __name__ == "__main__":
    main()
