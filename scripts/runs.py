"""Runs of `kvarena run` that scripts go on with, sitting by sitting. KVARENA_BUILD names another build than build/release."""

import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("KVARENA_BUILD") or ROOT / "build" / "release").resolve()
HOME = os.environ.get("KVARENA_HOME") or os.path.expanduser("~/.cache/kvarena")


def cpu():
    """The processor's name, empty where the system does not say."""
    return next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")


def build():
    subprocess.run([ROOT / "scripts" / "build", "release", "kvarena"], check=True)


def kvarena(*words):
    """Returns what a command prints; raises CalledProcessError when it fails."""
    return subprocess.run([BUILD / "bin" / "kvarena", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def deadline(minutes):
    """When `minutes` from now are over, for run(); None: never."""
    return minutes and time.monotonic() + 60 * minutes


def over(end):
    return end is not None and time.monotonic() > end


def run(words, database, end=None):
    """Runs a config, or goes on with it, into a database below the root; a sample in work at the end is finished first. Ends
    the script where the command is refused."""
    database = database.relative_to(ROOT)  # a database tells where it lay
    (ROOT / database).parent.mkdir(parents=True, exist_ok=True)
    running = subprocess.Popen([BUILD / "bin" / "kvarena", "run", *words, "--quiet", "--set", "output.report=", "--database", database],
                               cwd=ROOT, start_new_session=True)
    try:
        running.wait(end and max(0, end - time.monotonic()))
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as stopped:
        running.send_signal(signal.SIGINT)
        running.wait()
        if isinstance(stopped, KeyboardInterrupt):
            raise
    if running.returncode == 2:  # 1: a method failed, which the report says
        sys.exit(2)
