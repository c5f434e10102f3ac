"""Runs programs that a model wrote beside stored tests, as LiveCodeBench judges them (metrics/functional/livecodebench.cpp).

    python3 code_judge.py CHANNEL      CHANNEL: a socket, by descriptor

    judge: {"ready": true}
    program: {"code": TEXT, "tests": [TESTS, ...], "function": NAME or null, "seconds": of a test}; TESTS: JSON text of a list of
        {"input": TEXT, "output": TEXT}, or base64 of zlib of a pickle of that text, as official files have it: the pickle
        is looked at, not run
    judge: {"results": [true, or false or a negative number for a test that failed, the last], "tests": their number}

A program runs in a process of its own: bounds of time, memory and files, an empty folder, no other process, and no network
(without one of its own where the kernel lends none, calls of Python that would reach it are refused). It is no sandbox against
a program that wants out.

Failures are LiveCodeBench's: -2 another output, -3 too late, -4 an error; -2 alone where the process died.
"""

import ast
import base64
import builtins
import contextlib
import ctypes
import io
import json
import os
import pickletools
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import zlib
from decimal import Decimal
from types import ModuleType
from unittest.mock import mock_open, patch

MEMORY = 4 << 30  # bytes of addresses
FILES = 64
DIGITS = 50_000  # of a number that is written
WRONG, LATE, FAILED = -2, -3, -4
NEW_USER, NEW_NETWORK, NEW_IPC = 0x10000000, 0x40000000, 0x08000000  # unshare(2)
NO_NEW_PRIVILEGES, DIE_WITH_PARENT = 38, 1  # prctl(2)

# Names that programs find without an import of their own, in LiveCodeBench's order: later ones take the place of earlier ones.
ALL_NAMES_OF = ("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
                "functools", "operator", "io", "sys", "json", "builtins", "typing")
IMPORTS = "".join([*(f"from {name} import *\n" for name in ALL_NAMES_OF), *(f"import {name}\n" for name in ALL_NAMES_OF[:-2]),
                   "sys.setrecursionlimit(50000)\n"])

# Functions that programs do not find there.
TAKEN = {os: ("kill", "system", "putenv", "remove", "removedirs", "rmdir", "fchdir", "setuid", "fork", "forkpty", "killpg", "rename",
              "renames", "truncate", "replace", "unlink", "fchmod", "fchown", "chmod", "chown", "chroot", "lchflags", "lchmod", "lchown",
              "getcwd", "chdir"),
         shutil: ("rmtree", "move", "chown"), builtins: ("quit", "help")}
TAKEN_MODULES = ("ipdb", "joblib", "resource", "psutil", "tkinter")
REFUSED = ("subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "pty.", "ctypes.", "socket.", "urllib.", "http.")


class TimeoutException(Exception):
    """A test took too long. Programs may catch it, as they may in LiveCodeBench; its name tells it from other errors."""


def too_late(*_):
    print("too late")  # so that a program which goes on has written something else
    raise TimeoutException


def refuse(event, arguments):
    """An audit hook: raises at what a program must not do."""
    if event.startswith(REFUSED):
        raise PermissionError(f"{event} is not for programs to do")


def text_of(pickled):
    """The text whose pickle this is. A pickle of anything else is refused."""
    texts = []
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name in ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"):
            texts.append(argument)
        elif operation.name not in ("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"):
            raise ValueError(f"a pickle with {operation.name}, expected one of a text alone")
    if len(texts) != 1:
        raise ValueError(f"a pickle of {len(texts)} texts, expected one")
    return texts[0]


def tests_of(text):
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(text_of(zlib.decompress(base64.b64decode(text))))


@contextlib.contextmanager
def alarm(seconds):
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def module_of(code, seconds):
    with alarm(seconds):
        module = ModuleType("tmp_sol", "")
        exec(code, module.__dict__)
        return module.Solution() if "class Solution" in code else module


def failure(error):
    return LATE if "timeoutexception" in repr(error).lower() else FAILED


def call_results(code, tests, function, seconds):
    """Calls a function with each test's arguments, a line of JSON each, and compares what it returns."""
    method = getattr(module_of(f"{IMPORTS}\n\n{code}", seconds), function)
    cases = [([json.loads(line) for line in test["input"].split("\n")], json.loads(test["output"])) for test in tests]
    for arguments, expected in cases:
        try:
            with alarm(seconds):
                returned = method(*arguments)
            yield bool((list(returned) if isinstance(returned, tuple) else returned) == expected)
        except Exception as error:
            yield failure(error)


class Input:
    """Standard input, with the ways of LiveCodeBench's."""

    def __init__(self, text):
        self.text, self.stream = text, io.StringIO(text)
        self.buffer = InputBytes(text.encode())

    def read(self, *_):
        return self.text

    def readline(self, *arguments):
        return self.stream.readline(*arguments)

    def readlines(self, *_):
        return self.text.split("\n")

    def __getattr__(self, name):
        return getattr(self.stream, name)


class InputBytes:
    def __init__(self, data):
        self.data = data

    def read(self, *_):
        return self.data

    def readline(self, *_):
        return self.data.split(b"\n")[0] + b"\n"


@contextlib.contextmanager
def reading(text):
    """Has a program read this: also by a name that it gave standard input before, whose lines then come without their ends."""
    lines = iter(text.split("\n"))
    earlier = {"read": lambda *_: text, "readline": lambda *_: next(lines), "readlines": lambda *_: text.split("\n")}
    with patch.multiple(sys.stdin, **earlier), patch("sys.stdin", Input(text)), patch("builtins.open", mock_open(read_data=text)):
        yield


def without_main_guard(code):
    """The program with what it does under a last `if __name__ == '__main__'` done in any case."""
    with contextlib.suppress(Exception):
        body = ast.parse(code).body
        if isinstance(body[-1], ast.If) and ast.unparse(body[-1].test).strip() == "__name__ == '__main__'":
            return f"{ast.unparse(body[:-1])}\n{ast.unparse(body[-1].body)}"
    return code


def as_function(code):
    """The program as the body of a function, behind its own imports and the usual ones."""
    try:
        body = ast.parse(code).body
        imports = [statement for statement in body if isinstance(statement, (ast.Import, ast.ImportFrom))]
        others = [statement for statement in body if statement not in imports]
        function = ast.parse("def program():\n    pass").body[0]
        function.body = others
        return f"{IMPORTS}\n{ast.unparse(imports)}\n{ast.unparse(function)}"
    except Exception:
        return code


def decimals(line):
    """Numbers of a line, None where a word is none."""
    try:
        return [Decimal(word) for word in line.split()]
    except Exception:
        return None


def same_line(written, expected):
    numbers = decimals(written) if written != expected else None
    return written == expected or numbers is not None and numbers == decimals(expected)


def same_output(written, expected):
    """Whether lines are the same but for blanks around them, or have equal numbers."""
    lines = [[line.strip() for line in text.strip().split("\n")] for text in (written, expected)]
    return len(lines[0]) == len(lines[1]) and all(map(same_line, *lines))


def input_results(code, tests, seconds):
    """Runs a program for each test's input, and compares what it writes."""
    program = module_of(as_function(without_main_guard(code)), seconds).program
    for test in tests:
        written = io.StringIO()
        written.close = lambda: None
        try:
            with alarm(seconds), contextlib.redirect_stdout(written), reading(test["input"]), contextlib.suppress(SystemExit):
                program()
            yield True if same_output(written.getvalue(), test["output"]) else WRONG
        except Exception as error:
            yield failure(error)


def results_of(code, tests, function, seconds):
    """Results up to the first test that fails."""
    results = []
    try:
        for result in call_results(code, tests, function, seconds) if function else input_results(code, tests, seconds):
            results.append(result)
            if result is not True:
                break
    except Exception:
        return [FAILED]
    return results


def confine(folder, seconds):
    """Takes from this process what a program does not need. Refusals of the kernel are borne: it may be a sandbox already."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.unshare(NEW_USER | NEW_NETWORK | NEW_IPC) != 0:
        libc.unshare(NEW_NETWORK | NEW_IPC)
    os.chdir(folder)
    for bound, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_FSIZE, 0),
                        (resource.RLIMIT_NOFILE, FILES), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(bound, (most, most))
    signal.signal(signal.SIGALRM, too_late)
    sys.set_int_max_str_digits(DIGITS)
    os.environ.clear()
    os.environ["OMP_NUM_THREADS"] = "1"
    for module, names in TAKEN.items():
        for name in names:
            setattr(module, name, None)
    for name in TAKEN_MODULES:
        sys.modules[name] = None
    sys.addaudithook(refuse)


def run(request, tests, folder, seconds, result):
    """The process of a program, whose results go to a descriptor."""
    with open(os.devnull, "r+b", buffering=0) as nothing:
        for descriptor in (0, 1, 2):
            os.dup2(nothing.fileno(), descriptor)
    os.dup2(result, 3)
    os.closerange(4, 1 << 16)
    sys.stdin, sys.stdout = open(os.devnull), open(os.devnull, "w")
    confine(folder, seconds)
    results = results_of(request["code"], tests, request["function"], request["seconds"])
    os.write(3, json.dumps(results).encode())


def judged(request):
    tests = [test for text in request["tests"] for test in tests_of(text)]
    most = (request["seconds"] + 1) * len(tests) + 5
    read, write = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            try:
                run(request, tests, folder, most, write)
            finally:
                os._exit(0)
        os.close(write)
        said = until(read, time.monotonic() + most)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    try:
        results = json.loads(said)
    except ValueError:
        results = [WRONG]
    return {"results": results, "tests": len(tests)}


def until(descriptor, deadline):
    """All that is written until the deadline."""
    said = b""
    with open(descriptor, "rb", buffering=0) as file:
        while select.select([file], [], [], max(0, deadline - time.monotonic()))[0]:
            piece = file.read(1 << 16)
            if not piece:
                break
            said += piece
    return said


def main():
    channel = socket.socket(fileno=int(sys.argv[1])).makefile("rw", encoding="utf-8", newline="\n")

    def say(message):
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    say({"ready": True})
    for line in channel:
        try:
            said = judged(json.loads(line))
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        say(said)


if __name__ == "__main__":
    main()
