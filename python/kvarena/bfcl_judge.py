"""Carries out and judges BFCL's conversations of many turns by its authors' package (datasets/bfcl_judge.h has the messages).

    python3 bfcl_judge.py CHANNEL      CHANNEL: a socket, by descriptor

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
from contextlib import redirect_stdout

sys.path.pop(0)  # this folder has modules of common names
MEMORY = 8 << 30  # bytes of addresses
READS = {"os.listdir", "os.scandir"}  # as an import does
GUARDED = ("os.", "subprocess.", "socket.", "shutil.", "ctypes.", "pty.", "signal.", "tempfile.", "urllib.", "http.")


def imported():
    """The package's modules, which make folders for results when they are imported."""
    folder = tempfile.mkdtemp()
    os.environ["BFCL_PROJECT_ROOT"] = folder
    try:
        from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING
        from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils
        from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler
        from bfcl_eval.model_handler.base_handler import BaseHandler
        for name, module in CLASS_FILE_PATH_MAPPING.items():
            if not name.startswith(("Memory", "WebSearch")):
                __import__(module)
    finally:
        shutil.rmtree(folder)
    return BaseHandler, OpenAICompletionsHandler, multi_turn_checker.multi_turn_checker, multi_turn_utils


def refuse(event, arguments):
    """An audit hook: raises at what an answer must not do."""
    writes = event == "open" and (not isinstance(arguments[1], str) or set(arguments[1]) & set("wax+"))
    if writes or event.startswith(GUARDED) and event not in READS:
        raise PermissionError(f"{event} is not for answers to do")


class Unanswered(Exception):
    """The package's loop asks for an answer that is not there yet."""


def make_replay():
    base, completions, checker, utils = imported()

    class Replay(completions):
        """The package's handler of models without function calls of their own, with answers that are there already."""

        def __init__(self, name, answers):
            base.__init__(self, name, 0, name, is_fc_model=False)
            self.answers = iter(answers)
            self.messages = []

        def _query_prompting(self, inference_data):
            self.messages = inference_data["message"]
            for answer in self.answers:
                return answer, 0
            raise Unanswered

        def _parse_query_response_prompting(self, answer):
            return {"model_responses": answer, "input_token": 0, "output_token": 0,
                    "model_responses_message_for_chat_history": {"role": "assistant", "content": answer}}

        def calls_of(self, answer):
            try:
                calls = self.decode_execute(answer, has_tool_call_tag=False)
            except Exception:  # as the package's evaluation does: an answer without calls
                return []
            return [] if utils.is_empty_execute_response(calls) else calls

        def verdict(self, entry, ground_truth, result):
            """As eval_runner.py's _evaluate_single_multi_turn_entry, which imports every vendor's client."""
            if len(result) != len(ground_truth):
                return {"valid": False, "error_type": "multi_turn:force_terminated"}
            calls = [[made for made in map(self.calls_of, turn) if made] for turn in result]
            return checker(calls, ground_truth, entry, entry["id"].rsplit("_", 1)[0], self.model_name)

    def judge(entry, ground_truth, answers):
        replay = Replay("replay", answers)
        try:
            result, _ = replay.inference(copy.deepcopy(entry), include_input_log=False, exclude_state_log=True)
        except Unanswered:
            return {"messages": replay.messages}
        else:
            verdict = replay.verdict(entry, ground_truth, result)
            return {"messages": replay.messages, "result": result, "valid": verdict["valid"],
                    "error": verdict.get("error_type", "")}
        finally:
            for name in [name for name in vars(utils) if name.startswith("replay_")]:
                delattr(utils, name)  # the classes' instances, which the package keeps under names of the model and the entry

    return judge


def main():
    channel = socket.socket(fileno=int(sys.argv[1])).makefile("rw", encoding="utf-8", newline="\n")

    def say(message):
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    try:
        judge = make_replay()
    except ImportError as error:
        return say({"error": f"a Python without bfcl_eval: {error}", "absent": True})
    say({"ready": True})
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.addaudithook(refuse)
    for line in channel:
        request = json.loads(line)
        try:
            with redirect_stdout(io.StringIO()):
                said = judge(**request["task"], answers=request["answers"])
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        say(said)


if __name__ == "__main__":
    main()
