#!/usr/bin/env python3
"""Runs the papers' systems on this machine's GPU and prints each one's headline ratio beside the printed one.

scripts/gpu_headlines.py --program build/cuda/bin/kvarena --out FILE [--only PAPER]

An item runs with its paper's models where they and its data are there, else as for two cores, with the model on the device
all the same, and is called scaled. Databases lie in build/gpu; a run that was stopped goes on there. `scripts/gpu` calls this.
"""

import argparse
import json
import pathlib
import shlex
import sqlite3
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
REAL = ["--set", "engine.host_link=real"]

# Paper; item of `kvarena papers`, or a config of the default model where the paper's table has none; metric; whose; over whose;
# workload (any, if none is named); what the paper prints, and where; further words.
HEADLINES = [
    ("VeriCache", "vericache/figure11", "throughput_tokens_per_s", "VeriCache", "Full KV", None, "1.92 to 2.73", "figure 11", REAL),
    ("SpeCache", "configs/specache_batch.json", "throughput_tokens_per_s", "SpeCache, 1 bit, k 64", "Full KV", "[7936,48]", "4.6",
     "table 3, 32k tokens", []),
    ("SpeContext", "specontext/table3", "throughput_tokens_per_s", "SpeContext", "Full KV", "[2k, 32k]", "2.20",
     "table 3, over FlashInfer", REAL),
    ("EvicPress", "evicpress/figure7", "mean_time_to_first_token_ms", "EvicPress, alpha 1", "Prefill", None, "1.29 to 2.19", "figure 7", []),
    ("SpecCache", "speccache/figure6", "time_to_first_token_ms", "SpecCache, 0.15", "Full recompute", None, "2.3 to 3.7", "figure 6", []),
]
VALUES = """SELECT model, workload, method, AVG(value) FROM cells JOIN
            (SELECT cell_id, metric, clock, value FROM sample_values UNION ALL SELECT cell_id, metric, clock, value FROM cell_values)
            USING (cell_id) WHERE superseded = 0 AND clock = 'measured' AND metric = ? GROUP BY model, workload, method"""


def command_of(program, item):
    """The words that run an item on the device, and whether it is scaled down."""
    if item.endswith(".json"):
        models = json.loads((ROOT / item).read_text())["models"]
        return ["run", item, *(word for model in models for word in ("--set", f"models.{model}.device=cuda"))], True
    found = json.loads(subprocess.run([program, "papers", item, "--json"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    found = found["items"][0] if "items" in found else found
    if not any(found["needs"][what] for what in ("models", "data", "weights")):
        return shlex.split(found["commands"]["gpu"])[1:], False
    return [*shlex.split(found["commands"]["two_cores"])[1:], "--set", "models[0].device=cuda"], True


def ratios(database, metric, ours, beside, workload):
    """How many times better `ours` is, of each model and workload that has both; labels may go on behind a name."""
    values = {}
    for model, where, method, value in sqlite3.connect(database).execute(VALUES, [metric]):
        if workload in (None, where) and value:
            for name in (ours, beside):
                if method == name or method.startswith(name + " ["):
                    values.setdefault((model, where), {})[name] = value
    pairs = [pair for pair in values.values() if len(pair) == 2]
    return [pair[beside] / pair[ours] if metric.endswith("_ms") else pair[ours] / pair[beside] for pair in pairs]


def measure(program, folder, headline):
    paper, item, metric, ours, beside, workload, printed, place, words = headline
    command, scaled = command_of(program, item)
    database = folder / f"{paper.lower()}.db"
    row = {"paper": paper, "of": f"{metric} of {ours} over {beside}", "scaled": scaled, "printed": printed, "place": place}
    done = subprocess.run([program, *command, *words, "--quiet", "--set", "output.report=", "--database", database], cwd=ROOT)
    row["ratios"] = ratios(database, metric, ours, beside, workload) if database.exists() else []
    row["failed"] = done.returncode != 0
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=lambda name: pathlib.Path(name).resolve(), required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only")
    parser.add_argument("--folder", type=lambda name: pathlib.Path(name).resolve(), default=ROOT / "build" / "gpu")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = [measure(options.program, options.folder, one) for one in HEADLINES if options.only in (None, one[0])]
    for row in rows:
        low, high = (min(row["ratios"]), max(row["ratios"])) if row["ratios"] else (0, 0)
        here = "none" if not row["ratios"] else f"{low:.2f}" if high - low < 0.01 else f"{low:.2f} to {high:.2f}"
        note = ", scaled" * row["scaled"] + ", failed" * row["failed"]
        print(f"{row['paper']:<11} {row['of']:<66} here {here:>14} x{note}; printed {row['printed']} x ({row['place']})")
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


main()
