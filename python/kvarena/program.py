"""The program beside this module: found, called, its refusals raised."""

import os
import pathlib
import shutil
import subprocess


class Refused(RuntimeError):
    """What the program wrote to standard error when it could not do what was asked."""


def find():
    """Path of the program: $KVARENA_PROGRAM, else `kvarena` on PATH, else the build folder of this tree."""
    built = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "bin" / "kvarena"
    for path in (os.environ.get("KVARENA_PROGRAM"), shutil.which("kvarena"), built):
        if path and os.access(path, os.X_OK):
            return str(path)
    raise FileNotFoundError("no program kvarena: build it (scripts/build), or put its path into KVARENA_PROGRAM")


def run(*words, allowed=(0,)):
    """Runs the program. Raises Refused with its message for an exit code that is not allowed."""
    finished = subprocess.run([find(), *words], capture_output=True, text=True)
    if finished.returncode not in allowed:
        raise Refused(finished.stderr.strip())
    return finished

