"""The program beside this module: found, called, its refusals raised."""

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence


class Refused(RuntimeError):
    """What the program wrote to standard error when it could not do what was asked."""


def find() -> str:
    """Path of the program: $KVARENA_PROGRAM, else the one that is installed with this module, `kvarena` on PATH, or the
    build folder of this tree."""
    folder = pathlib.Path(__file__).resolve().parent
    built = folder.parents[1] / "build" / "release" / "bin" / "kvarena"
    for path in (os.environ.get("KVARENA_PROGRAM"), folder / "bin" / "kvarena", shutil.which("kvarena"), built):
        if path and os.access(path, os.X_OK):
            return str(path)
    raise FileNotFoundError("no program kvarena: build it (scripts/build), or put its path into KVARENA_PROGRAM")


def own_file(path: str | os.PathLike) -> pathlib.Path:
    """The file, or where there is none that of the program's folder: configs/quickstart.json."""
    own = pathlib.Path(find()).resolve().parents[1] / path
    return own if own.exists() and not os.path.exists(path) else pathlib.Path(path)


def environment() -> dict[str, str]:
    """What the program is started with: plugins run in this Python where the user names no other."""
    return {"KVARENA_PYTHON": sys.executable, **os.environ}


def run(*words: str, allowed: Sequence[int] = (0,)) -> subprocess.CompletedProcess[str]:
    """Runs the program. Raises Refused with its message for an exit code that is not allowed."""
    finished = subprocess.run([find(), *words], capture_output=True, text=True, env=environment())
    if finished.returncode not in allowed:
        raise Refused(finished.stderr.strip())
    return finished


def main() -> None:
    """The command `kvarena`: this process becomes the program."""
    os.execve(find(), ["kvarena", *sys.argv[1:]], environment())
