"""`bfcl evaluate` on what the default model says in bfcl/multi_turn_* and bfcl/memory_*: results that a run stored, in the form of
its runner's files, have the run's own verdicts. Skipped where bfcl_eval or the model is absent.

    python3 tests/end_to_end/bfcl_evaluate_test.py build/release/bin/kvarena [SAMPLES] [DATABASE]

SAMPLES: of each workload, 1 if not given. DATABASE: of such a run over project-made rows, in its place.
"""

import collections
import contextlib
import io
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

SCRATCH = tempfile.TemporaryDirectory()
FOLDER = pathlib.Path(SCRATCH.name)
HOME = pathlib.Path(os.environ.get("KVARENA_HOME", pathlib.Path.home() / ".cache" / "kvarena"))
MODEL = HOME / "models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"
os.environ.update(BFCL_PROJECT_ROOT=SCRATCH.name, OPENAI_API_KEY="none")
try:
    from bfcl_eval import utils
    from bfcl_eval.eval_checker import eval_runner
except ImportError as error:
    print(f"skipped: {error}; pip install bfcl-eval==2026.3.23")
    sys.exit(77)
if not MODEL.exists():
    print(f"skipped: no {MODEL}; scripts/setup brings it")
    sys.exit(77)

KVARENA = pathlib.Path(sys.argv[1]).resolve()
SAMPLES = KVARENA.parents[1] / "samples"
JUDGED = "gpt-4o-2024-11-20"  # a model whose answers the package takes as they are
WORKLOADS = [f"bfcl/{name}" for name in ("multi_turn_base", "multi_turn_long_context", "multi_turn_miss_func", "multi_turn_miss_param",
                                         "memory_kv", "memory_rec_sum", "memory_vector")]


def run(samples):
    """The database of a run of the default model, with short answers and little room."""
    config = {"name": "bfcl", "models": ["smollm2-135m"], "methods": ["full"],
              "workloads": [{"name": name, "limit": samples, "room": 1200} for name in WORKLOADS],
              "engine": {"max_new_tokens": 20, "noise_floor": 0}, "output": {"database": "run.db"}}
    (FOLDER / "run.json").write_text(json.dumps(config))
    subprocess.run([KVARENA, "run", "run.json"], cwd=FOLDER, check=True,
                   env=os.environ | {"KVARENA_DATA": str(SAMPLES), "KVARENA_PYTHON": sys.executable})
    return FOLDER / "run.db"


def entries(database):
    """By category, each entry's result, verdict and kind of error."""
    found = collections.defaultdict(dict)
    rows = sqlite3.connect(database).execute("SELECT workload, sample_id, prediction FROM samples JOIN cells USING (cell_id)")
    for workload, name, prediction in rows:
        record = json.loads(prediction)
        category = found[workload.split("/")[1].split(" ")[0]]
        if "questions" in record:
            category.update({q["id"]: (record["result"][q["id"]], q["valid"], q["error"]) for q in record["questions"]})
        else:
            category[name] = record["result"], record["valid"], record["error"]
    return found


def evaluated(category, results):
    """The kinds of errors of entries that `bfcl evaluate` finds at fault."""
    folder = FOLDER / category
    file = folder / "result" / JUDGED / utils.get_directory_structure_by_category(category) / utils.get_file_name_by_category(
        category, is_result_file=True)
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps({"id": name, "result": result}) + "\n" for name, result in results.items()))
    with contextlib.redirect_stdout(io.StringIO()):
        eval_runner.main([JUDGED], [category], folder / "result", folder / "score", partial_eval=True)
    [score] = (folder / "score" / JUDGED).rglob("*_score.json")
    header, *faults = map(json.loads, score.read_text().splitlines())
    assert header["total_count"] == len(results), header
    return {fault["id"]: fault["error"]["error_type"] for fault in faults}


def main():
    utils.PROMPT_PATH, utils.POSSIBLE_ANSWER_PATH = SAMPLES / "bfcl", SAMPLES / "bfcl/possible_answer"
    utils.MULTI_TURN_FUNC_DOC_PATH = SAMPLES / "bfcl/multi_turn_func_doc"
    utils.MEMORY_PREREQ_CONVERSATION_PATH = SAMPLES / "bfcl/memory_prereq_conversation"
    eval_runner.generate_leaderboard_csv = lambda *_: None  # a table of all categories
    samples = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    found = entries(sys.argv[3] if len(sys.argv) > 3 else run(samples))
    assert len(found) == len(WORKLOADS), list(found)
    for category, said in sorted(found.items()):
        faults = evaluated(category, {name: result for name, (result, _, _) in said.items()})
        ours = {name: error for name, (_, valid, error) in said.items() if not valid}
        print(f"{category}: {len(said)} entries, {len(said) - len(faults)} right", dict(collections.Counter(faults.values())))
        assert ours == faults, (ours, faults)


main()
