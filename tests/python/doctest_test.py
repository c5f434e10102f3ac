"""Runs the examples in the module's docstrings: doctest_test.py SOURCE PROGRAM."""

import doctest
import importlib
import importlib.util
import os
import pathlib
import sys
import tempfile

SOURCE, PROGRAM = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(SOURCE / "python"))
os.environ["KVARENA_PROGRAM"] = PROGRAM
HOME = pathlib.Path(os.environ.get("KVARENA_HOME") or pathlib.Path.home() / ".cache" / "kvarena")
for needed, there in {
    "pandas": importlib.util.find_spec("pandas"),
    "the default model": (HOME / "models" / "smollm2-135m").exists(),
}.items():
    if not there:
        print(f"skipped: {needed} is absent (scripts/setup)")
        sys.exit(77)

import kvarena  # noqa: E402

CONFIG = {
    "name": "examples",
    "models": ["smollm2-135m"],
    "engine": {"max_new_tokens": 4, "noise_floor": 0},
    "workloads": [{"name": "needle", "words": [60], "samples": 2}],
    "methods": [{"name": "full"}, {"name": "knorm", "keep": 0.5}],
}
LEAST = {"kvarena.inspecting": 3, "kvarena.results": 6, "kvarena.methods": 4}  # examples


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        results = kvarena.run(CONFIG, database=pathlib.Path(folder) / "run.db")
        for name, least in LEAST.items():
            module = importlib.import_module(name)
            found = doctest.testmod(module, extraglobs={"kvarena": kvarena, "results": results},
                                    optionflags=doctest.ELLIPSIS)
            print(f"{name}: {found.attempted} examples, {found.failed} failed")
            failed += found.failed or found.attempted < least
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
