"""Compiles C++ programs of answers and runs them on stored tests (datasets/program_judge.h has the messages).

    python3 program_judge.py CHANNEL      CHANNEL: a socket, by descriptor

A program is linked statically and runs in namespaces of its own: its root folder holds nothing but itself, it sees no network
and no other process, and its time, its memory and its output have bounds.
"""

import json
import os
import pathlib
import re
import resource
import socket
import subprocess
import sys
import tempfile

# princeton-pli/LongProc @78e873a longproc/spoc_evaluator.py: what a program may use, compiler, tests and seconds.
HEADERS = ("cstdio", "iostream", "vector", "algorithm", "numeric", "cmath", "cstring", "set", "map", "queue", "stack", "list", "fstream",
           "climits", "cassert", "iomanip", "sstream", "bitset")
COMPILER = ("g++", "-std=c++11", "-O")
TESTS, SECONDS = 10, 3
COMPILE_SECONDS, MEMORY, OUTPUT = 60, 1 << 30, 64 << 20  # bytes of addresses and of a file
ALONE = ("unshare", "--user", "--map-root-user", "--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child")


def bounded(memory, seconds):
    def limit():
        for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_FSIZE, OUTPUT), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(what, (most, most))
    return limit


def compiled(code, folder):
    """What the compiler has against it; empty where there is a program."""
    source = "".join(f"#include <{header}>\n" for header in HEADERS) + "using namespace std;\n" + code
    (folder / "program.cpp").write_text(source, encoding="utf-8", errors="replace")
    try:
        run = subprocess.run([*COMPILER, "-static", "-o", folder / "root/program", folder / "program.cpp"], stdin=subprocess.DEVNULL,
                             capture_output=True, timeout=COMPILE_SECONDS, preexec_fn=bounded(4 * MEMORY, COMPILE_SECONDS))
    except subprocess.TimeoutExpired:
        return f"more than {COMPILE_SECONDS} s"
    return "" if run.returncode == 0 else run.stderr.decode("utf-8", "replace")[-400:] or "no program"


def says(folder, text):
    """What the program writes for an input, or None where its time is over."""
    with (folder / "output").open("w+b") as output:
        try:
            subprocess.run([*ALONE, f"--root={folder / 'root'}", "--wd=/", "/program"], input=text.encode(), stdout=output,
                           stderr=subprocess.DEVNULL, env={}, timeout=SECONDS, preexec_fn=bounded(MEMORY, SECONDS + 1))
        except subprocess.TimeoutExpired:
            return None
        output.seek(0)
        return output.read()


def judge(answer, tests):
    """Whether the program in an answer passes the tests, and if not why."""
    block = re.search(r"```cpp([\s\S]*)```", answer.replace("```c++", "```cpp"))
    if block is None:
        return {"extracted": False, "valid": False, "error": "no program"}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "root").mkdir()
        error = compiled(block[1], folder)
        if error:
            return {"extracted": True, "valid": False, "error": "compilation error", "detail": error}
        for number, (given, wanted) in enumerate(tests[:TESTS]):
            said = says(folder, "".join(f"{line}\n" for line in given))
            if said != "".join(f"{line}\n" for line in wanted).encode():
                return {"extracted": True, "valid": False, "error": "timeout" if said is None else "inconsistent", "detail": f"test {number}"}
    return {"extracted": True, "valid": True, "error": ""}


def main():
    channel = socket.socket(fileno=int(sys.argv[1]))
    reader, writer = channel.makefile("r", encoding="utf-8"), channel.makefile("w", encoding="utf-8")

    def say(message):
        writer.write(json.dumps(message) + "\n")
        writer.flush()
    try:
        trial = judge("```cpp\nint main() { cout << 7 << endl; }\n```", [[[""], ["7"]]])
        say({"ready": True} if trial["valid"] else {"error": f"a first program fails: {trial['error']}, {trial['detail']}"})
    except OSError as error:
        say({"error": str(error)})
    for line in reader:
        asked = json.loads(line)
        say(judge(asked["answer"], asked["tests"]))


if __name__ == "__main__":
    main()
