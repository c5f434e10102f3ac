"""The process beside the program: imports a plugin and answers (harness/method/python/child.h has the messages).

    python3 child.py FILE MEMORY CHANNEL      MEMORY a memory file, CHANNEL a socket, both by descriptor
"""

import importlib.util
import json
import mmap
import os
import pathlib
import socket
import sys
import traceback

os.environ.setdefault("TQDM_DISABLE", "1")  # no bars among the program's lines
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

    def room(self, shape):
        """Room for float32 numbers that the program reads: a place as messages have it, and the array there."""
        self.send({"want": "room", "shape": shape})
        where = self.receive()
        self._map(where["bytes"])
        return {"offset": where["offset"], "shape": shape}, self._view(where["offset"], shape, "float32")

    def write(self, parts, shape):
        """Writes arrays of one shape, one behind the other, to where the program reads them. Returns the place."""
        place, array = self.room([len(parts), *shape])
        for i, part in enumerate(parts):
            array[i] = part.detach() if hasattr(part, "detach") else part
        return place

    def next(self, room, logits):
        """Shows the program a row of logits. Returns its answer, no number or one."""
        place, array = room
        array[:] = logits
        return self.array("next", place)

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
    """What the file defines of methods.KINDS or lists as METHODS, by name, and its __version__."""
    file = pathlib.Path(file)
    sys.path.insert(0, str(file.parent))
    name = "plugin " + file.stem  # no other module's
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    here = [value for value in vars(module).values() if getattr(value, "__module__", None) == name]
    found = {}
    for value in [*here, *getattr(module, "METHODS", [])]:
        if isinstance(value, type) and issubclass(value, methods.KINDS):
            description = methods.describe(value)
            if found.setdefault(description["name"], (value, description))[0] is not value:
                raise ValueError(f"two methods named {description['name']}")
    if not found:
        raise ImportError(
            "no method in it; expected a function with @kvarena.scorer or @kvarena.budget_rule, or a subclass of "
            "kvarena.Scorer, Codec, Retriever or BudgetRule"
        )
    return found, str(getattr(module, "__version__", ""))


def reason(error, file):
    """What was raised, in one line, and the last line of the plugin that it went through."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} (line {error.lineno})"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if os.path.realpath(frame.filename) == os.path.realpath(file):
            return f"{text} (line {frame.lineno}: {frame.line})"
    return text


_SHOWN = 5  # last lines of a traceback


def last_lines(error):
    """What the cell's log has of an exception."""
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    return "\n".join(["Traceback, its last lines:", *lines[-_SHOWN:]])


def make(classes, name, settings, made):
    key = (name, json.dumps(settings, sort_keys=True))
    if key not in made:
        made[key] = classes[name][0](**settings)
    return made[key]


def facts(method):
    """What a scorer reads and protects; how a codec's bytes are counted, and what it leaves in 16 bits; what a retriever
    always attends to; how much of a cache a budget rule sees. Nothing of an engine."""
    if isinstance(method, methods.Engine):
        return {}
    if isinstance(method, methods.BudgetRule):
        return {"whole_cache": bool(method.whole_cache)}
    if isinstance(method, methods.Codec):
        found = {"bits": float(method.bits), "block": int(method.block), "residual": int(method.residual)}
        if not 0 < found["bits"] <= 32 or found["block"] < 1 or found["residual"] < 0:
            raise ValueError(f"{found}, expected 0 < bits <= 32, block >= 1, residual >= 0")
        return found
    protected = {"sinks": int(method.sinks), "recent": int(method.recent)}
    if isinstance(method, methods.Retriever):
        return protected
    return {
        "needs": {
            "window": int(method.window),
            "prompt_attention": bool(method.prompt_attention),
            "hidden": bool(method.hidden),
            "output_projection": bool(method.output_projection),
            "future": int(method.future),
            "query_moments": [int(left_out) for left_out in method.query_moments],
        },
        "protect": protected,
    }


def checked(numbers, call, expected, names):
    shape = list(getattr(numbers, "shape", []))
    if shape != expected:
        raise ValueError(f"{call} returned {shape or type(numbers).__name__}, expected {names}, here {expected}")
    return numbers


def score(scorer, request, channel):
    scores = scorer.score(methods.Layer(request, channel.array, scorer))
    shape = [request["kv_heads"], request["n"]]
    return channel.write([checked(scores, "score()", shape, "[kv_heads, n]")], shape)


def code(codec, request, channel):
    """Keys and values as they come back."""
    entries = methods.Entries(request, channel.array)
    shape = [entries.kv_heads, entries.n, entries.head_dim]
    parts = []
    for side, rows in (("keys", entries.keys), ("values", entries.values)):
        decoded = codec.dequantise(codec.quantise(rows, side, entries), side, entries)
        parts.append(checked(decoded, f"dequantise() of {side}", shape, "[kv_heads, n, head_dim]"))
    return channel.write(parts, shape)


def select(retriever, request, channel):
    scores = retriever.score(methods.Step(request, channel.array))
    heads = request["q_heads" if list(getattr(scores, "shape", []))[:1] == [request["q_heads"]] else "kv_heads"]
    shape = [heads, request["n"]]
    return channel.write([checked(scores, "score()", shape, "[kv_heads, n] or [q_heads, n]")], shape)


def divide(rule, request, channel):
    budgets = rule.divide(methods.Division(request, channel.array))
    shape = [request["layers"], request["kv_heads"]]
    return channel.write([checked(budgets, "divide()", shape, "[layers, kv_heads]")], shape)


def reply(engine, request, channel):
    return engine.answer(request, channel)


ACTS = {"score": score, "code": code, "select": select, "divide": divide, "answer": reply}


def answer(classes, request, channel, made):
    if "make" in request:
        return facts(make(classes, request["make"], request["settings"], made))
    verb = next(verb for verb in ACTS if verb in request)
    return ACTS[verb](make(classes, request[verb], request["settings"], made), request, channel)


def main():
    file, channel = sys.argv[1], Channel(int(sys.argv[3]), int(sys.argv[2]))
    try:
        classes, version = load(file)
        channel.send({"methods": [description for _, description in classes.values()], "version": version})
    except BaseException as error:
        channel.send({"error": reason(error, file)})
        return
    made = {}
    while (request := channel.receive()) is not None:
        try:
            channel.send({"done": answer(classes, request, channel, made)})
        except Exception as error:
            acted = {} if "make" in request else {"traceback": last_lines(error)}
            channel.send({"error": reason(error, file)} | acted)


if __name__ == "__main__":
    main()
