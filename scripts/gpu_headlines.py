#!/usr/bin/env python3
"""Runs the papers' systems on this machine's GPU and prints each one's headline ratio beside the printed one.

scripts/gpu_headlines.py --program build/cuda/bin/kvarena --out FILE [--only PAPER]

An item runs with its paper's models where they and its data are there, else as for two cores, with the model on the device
all the same, and is called scaled; so is a config of the default model. Ratios are by model where the paper prints one of
each, else their range. Databases lie in build/gpu, one an item; a run that was stopped goes on there. `scripts/gpu` calls this.
"""

import argparse
import itertools
import json
import pathlib
import shlex
import sqlite3
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]

RATE, ACCEPTED = "throughput_tokens_per_s", "acceptance_length"
QWEN, LLAMA, BATCH = "qwen3-32b", "llama-3.3-70b-instruct", "configs/specache_batch.json"
# Paper; item of `kvarena papers`, or a config of the default model where the paper's table has none; metric; whose; over whose
# (none: tokens, not a ratio); workload (any, if none is named); what the paper prints, over its models or of each; where.
# Headlines of one item follow each other.
HEADLINES = [
    ("VeriCache", "vericache/figure11", RATE, "VeriCache", "Full KV", None, "1.92 to 2.73", "figure 11"),
    ("VeriCache", "configs/verification_runtime.json", RATE, "VeriCache, staggered", "Full KV", None, "1.92 to 2.73", "figure 11"),
    ("VeriCache", "configs/remote_prefix.json", RATE, "VeriCache over KIVI, best mix", "Full KV", None, "1.33 to 2.11",
     "figure 11, remote prefixes; links are emulated here"),
    ("VeriCache", "vericache/figure9", ACCEPTED, "VeriCache, x = 30", None, None, {QWEN: "~19", LLAMA: "~23"}, "figure 9"),
    ("VeriCache", "vericache/figure9", ACCEPTED, "EAGLE-3, x = 30", None, None, "1 to 2", "figure 9"),
    ("VeriCache", "vericache/figure9", ACCEPTED, "Qwen3-1.7B drafts, x = 30", None, None, {QWEN: "~3"}, "figure 9"),
    ("VeriCache", "vericache/figure9", ACCEPTED, "Llama-3.1-8B drafts, x = 30", None, None, {LLAMA: "~10"}, "figure 9"),
    ("SpeCache", BATCH, RATE, "SpeCache, 1 bit, k 64", "Full KV", "[2048,48]", "2.8", "table 3, 2k tokens"),
    ("SpeCache", BATCH, RATE, "SpeCache, 1 bit, k 64", "Full KV", "[7936,48]", "3.8", "table 3, 8k tokens"),
    ("SpeCache", BATCH, RATE, "SpeCache, 2 bits, k 64", "Full KV", "[2048,48]", "2.2", "table 3, 2k tokens"),
    ("SpeCache", BATCH, RATE, "SpeCache, 2 bits, k 64", "Full KV", "[7936,48]", "2.8", "table 3, 8k tokens"),
    ("SpeContext", "specontext/table3", RATE, "SpeContext", "Full KV", "[2k, 32k]",
     {"deepseek-r1-distill-llama-8b": "2.20", "qwen3-8b": "1.67"}, "table 3, over FlashInfer"),
    ("EvicPress", "evicpress/figure7", "mean_time_to_first_token_ms", "EvicPress, alpha 1", "Prefill", None, "1.29 to 2.19", "figure 7"),
    ("SpecCache", "speccache/figure6", "time_to_first_token_ms", "SpecCache, 0.15", "Full recompute", None, "2.3 to 3.7", "figure 6"),
]
VALUES = """SELECT model, workload, method, AVG(value) FROM cells JOIN
            (SELECT cell_id, metric, clock, value FROM sample_values UNION ALL SELECT cell_id, metric, clock, value FROM cell_values)
            USING (cell_id) WHERE superseded = 0 AND clock != 'modelled' AND metric = ? GROUP BY model, workload, method"""


def command_of(program, item):
    """The words that run an item on the device, over the machine's own bus, and whether it is scaled down."""
    if item.endswith(".json"):
        models = json.loads((ROOT / item).read_text())["models"]
        return ["run", item, *(word for model in models for word in ("--set", f"models.{model}.device=cuda"))], True
    found = json.loads(subprocess.run([program, "papers", item, "--json"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    found = found["items"][0] if "items" in found else found
    if not any(found["needs"][what] for what in ("models", "data", "weights")):
        return shlex.split(found["commands"]["gpu"])[1:], False
    device = ["--set", "models[0].device=cuda", "--set", "engine.host_link=real"]
    return [*shlex.split(found["commands"]["two_cores"])[1:], *device], True


def ratios(database, metric, ours, beside, workload):
    """(model, how many times better `ours` is) of each workload that has both, or what `ours` has where nothing stands beside;
    labels may go on behind a name."""
    values = {}
    for model, where, method, value in sqlite3.connect(database).execute(VALUES, [metric]):
        if workload in (None, where) and value:
            for name in (ours, beside):
                if name and (method == name or method.startswith(name + " [")):
                    values.setdefault((model, where), {})[name] = value
    if beside is None:
        return [(model, value[ours]) for (model, _), value in values.items()]
    pairs = [(model, pair) for (model, _), pair in values.items() if len(pair) == 2]
    return [(model, pair[beside] / pair[ours] if metric.endswith("_ms") else pair[ours] / pair[beside]) for model, pair in pairs]


def rows(headline, database, run):
    """A row, or one for each model that the paper prints a number of; scaled down, one model stands beside all of these."""
    paper, _, metric, ours, beside, workload, printed, place = headline
    unit = " x" if beside else " tokens"
    found = ratios(database, metric, ours, beside, workload) if database.exists() else []
    row = run | {"paper": paper, "of": f"{metric} of {ours}", "unit": unit, "place": place}
    row["of"] += f" beside {beside}" * (beside is not None) + f", {workload}" * (workload is not None)
    if isinstance(printed, str):
        return [row | {"printed": printed + unit, "ratios": [ratio for _, ratio in found]}]
    if run["scaled"]:
        every = ", ".join(f"{number}{unit} for {model}" for model, number in printed.items())
        return [row | {"printed": every, "ratios": [ratio for _, ratio in found]}]
    return [row | {"of": f"{row['of']}, {model}", "printed": number + unit, "ratios": [ratio for whose, ratio in found if whose == model]}
            for model, number in printed.items()]


def measure(program, folder, item, headlines):
    command, scaled = command_of(program, item)
    database = folder / f"{item.removeprefix('configs/').removesuffix('.json').replace('/', '-')}.db"
    done = subprocess.run([program, *command, "--quiet", "--set", "output.report=", "--database", database], cwd=ROOT)
    return [row for one in headlines for row in rows(one, database, {"scaled": scaled, "failed": done.returncode != 0})]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=lambda name: pathlib.Path(name).resolve(), required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only")
    parser.add_argument("--folder", type=lambda name: pathlib.Path(name).resolve(), default=ROOT / "build" / "gpu")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = [one for one in HEADLINES if options.only in (None, one[0])]
    table = [row for item, some in itertools.groupby(chosen, lambda one: one[1])
             for row in measure(options.program, options.folder, item, some)]
    width = max((len(row["of"]) for row in table), default=0)
    for row in table:
        low, high = (min(row["ratios"]), max(row["ratios"])) if row["ratios"] else (0, 0)
        here = (f"{low:.2f}" if high - low < 0.01 else f"{low:.2f} to {high:.2f}") + row["unit"] if row["ratios"] else "none"
        note = ", scaled" * row["scaled"] + ", failed" * row["failed"]
        print(f"{row['paper']:<10} {row['of']:<{width}} here {here:>16}{note}; printed {row['printed']} ({row['place']})")
    options.out.write_text(json.dumps(table, indent=1) + "\n")


main()
