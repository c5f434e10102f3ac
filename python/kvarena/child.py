"""The process beside the program: imports a plugin and answers (harness/method/python/child.h has the messages).

    python3 child.py FILE CHANNEL MEMORY      CHANNEL a socket, MEMORY a memory file, both by descriptor
"""

import importlib.util
import json
import mmap
import os
import pathlib
import socket
import sys
import traceback

sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)  # this folder has modules of common names

from kvarena import methods  # noqa: E402


class Channel:
    """Lines of JSON over a socket, arrays in shared memory."""

    def __init__(self, channel, memory):
        self._file = socket.socket(fileno=channel).makefile("rw", encoding="utf-8", newline="\n")
        self._memory = memory
        self._mapped = None
        self._bytes = 0

    def receive(self):
        """The next message, None when the program has ended."""
        line = self._file.readline()
        return json.loads(line) if line else None

    def send(self, message):
        self._file.write(json.dumps(message) + "\n")
        self._file.flush()

    def array(self, name, argument):
        """An array that the program makes, where it lies."""
        self.send({"want": name, "argument": argument})
        where = self.receive()
        self._map(where["bytes"])
        return self._view(where["offset"], where["shape"], where["dtype"])

    def write(self, scores, shape):
        """Writes the numbers to where the program reads them. Returns the place."""
        self.send({"want": "room", "shape": shape})
        where = self.receive()
        self._map(where["bytes"])
        place = self._view(where["offset"], shape, "float32")
        place[...] = scores
        return {"offset": where["offset"], "shape": shape}

    def _map(self, size):
        if size != self._bytes:  # arrays of the smaller map hold it
            self._mapped = mmap.mmap(self._memory, size)
            self._bytes = size

    def _view(self, offset, shape, dtype):
        count = 1
        for size in shape:
            count *= size
        if "torch" in sys.modules:
            import torch

            if count == 0:
                return torch.empty(shape, dtype=getattr(torch, dtype))
            return torch.frombuffer(self._mapped, dtype=getattr(torch, dtype), count=count, offset=offset).view(shape)
        try:
            import numpy
        except ImportError:
            raise ImportError("a plugin needs numpy, or torch which it imports itself") from None
        return numpy.frombuffer(self._mapped, dtype=dtype, count=count, offset=offset).reshape(shape)


def load(file):
    """The scorers that the file defines or lists as METHODS, by name, and its __version__."""
    file = pathlib.Path(file)
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    here = [value for value in vars(module).values() if getattr(value, "__module__", None) == file.stem]
    found = {}
    for value in [*here, *getattr(module, "METHODS", [])]:
        if isinstance(value, type) and issubclass(value, methods.Scorer):
            description = methods.describe(value)
            found[description["name"]] = (value, description)
    if not found:
        raise ImportError("no method in it; expected a function with @kvarena.scorer or a subclass of kvarena.Scorer")
    return found, str(getattr(module, "__version__", ""))


def reason(error, file):
    """What was raised, and the last line of the plugin that it went through."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} (line {error.lineno})"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if os.path.realpath(frame.filename) == os.path.realpath(file):
            return f"{text} (line {frame.lineno}: {frame.line})"
    return text


def make(scorers, name, settings, made):
    key = (name, json.dumps(settings, sort_keys=True))
    if key not in made:
        made[key] = scorers[name][0](**settings)
    return made[key]


def facts(scorer):
    """What a scorer reads and protects."""
    return {
        "needs": {
            "window": int(scorer.window),
            "prompt_attention": bool(scorer.prompt_attention),
            "hidden": bool(scorer.hidden),
            "output_projection": bool(scorer.output_projection),
            "future": int(scorer.future),
            "query_moments": [int(left_out) for left_out in scorer.query_moments],
        },
        "protect": {"sinks": int(scorer.sinks), "recent": int(scorer.recent)},
    }


def score(scorer, request, channel):
    layer = methods.Layer(request, channel.array, scorer)
    try:
        scores = scorer.score(layer)
    except Exception:
        traceback.print_exc()  # the cell's log has it whole
        raise
    expected = [request["kv_heads"], request["n"]]
    shape = list(getattr(scores, "shape", []))
    if shape != expected:
        raise ValueError(f"score() returned {shape or type(scores).__name__}, expected [kv_heads, n], here {expected}")
    return channel.write(scores.detach() if hasattr(scores, "detach") else scores, expected)


def answer(scorers, request, channel, made):
    if "make" in request:
        return facts(make(scorers, request["make"], request["settings"], made))
    return score(make(scorers, request["score"], request["settings"], made), request, channel)


def main():
    file, channel = sys.argv[1], Channel(int(sys.argv[2]), int(sys.argv[3]))
    try:
        scorers, version = load(file)
        channel.send({"methods": [description for _, description in scorers.values()], "version": version})
    except BaseException as error:
        channel.send({"error": reason(error, file)})
        return
    made = {}
    while (request := channel.receive()) is not None:
        try:
            channel.send({"done": answer(scorers, request, channel, made)})
        except Exception as error:
            channel.send({"error": reason(error, file)})


if __name__ == "__main__":
    main()
