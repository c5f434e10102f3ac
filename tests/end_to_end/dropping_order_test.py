"""Dropping methods stand between chance and the oracle, on the real model.

    python3 tests/end_to_end/dropping_order_test.py build/release/bin/kvarena SOURCE_FOLDER

Runs the sweep of configs/dropping_methods.json at a quarter of the entries, two prompts of each task, and compares how far
each method's next-token distributions are from full KV's along its answer (mean KL). The oracle, which keeps what the
continuation will attend to, must do at least as well as the best method that decides at the end of the prompt, and that
method must beat entries kept by chance. Methods without that budget are left out. And configs/compression_cost.json, on short
prompts: every method says what observing and compressing took of its prefill. Standard library only. Exits with 77 (skipped)
when the model is absent.
"""

import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import unittest

KVARENA, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
HOME = pathlib.Path(os.environ.get("KVARENA_HOME", pathlib.Path.home() / ".cache" / "kvarena"))
TIMES = """
select method, metric, value from v_values
where metric in ('prefill_ms', 'observe_ms', 'compress_ms', 'compression_overhead', 'time_to_first_token_ms')
"""
MEANS = "select method, avg(value), count(*) from v_values where metric = 'kl_nats' group by method"


def sweep(keep):
    """The config with one budget, and only what has it."""
    config = json.loads((SOURCE / "configs/dropping_methods.json").read_text())
    methods = [method for method in config["methods"] if method["name"] == "full"]
    for method in config["methods"]:
        if "keep" in method.get("matrix", {}):
            label = method.get("label", method["name"]).replace("{keep}", str(keep))
            methods.append({key: value for key, value in method.items() if key != "matrix"} | {"keep": keep, "label": label})
    return config | {"methods": methods}


def results(config, query, *options):
    """Rows of a query over what a config's run left."""
    with tempfile.TemporaryDirectory() as folder:
        path, database = pathlib.Path(folder) / "config.json", pathlib.Path(folder) / "results.db"
        path.write_text(json.dumps(config))
        subprocess.run([str(KVARENA), "run", str(path), "--quiet", "--set", "engine.noise_floor=0", "--set",
                        "output.report=", "--database", str(database), *options], check=True, stdout=subprocess.DEVNULL)
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()


class DroppingOrder(unittest.TestCase):
    def test_oracle_best_method_and_chance_come_in_this_order(self):
        found = {method: (mean, count) for method, mean, count in results(sweep(0.25), MEANS, "--limit", "2")}
        self.assertEqual({count for _, count in found.values()}, {6})
        kl = {method: mean for method, (mean, _) in found.items()}
        for method, mean in sorted(kl.items(), key=lambda item: item[1]):
            print(f"{method:40} {mean:.4f} nats", file=sys.stderr)
        oracle, chance = kl["future_oracle"], kl["random"]
        best = min(mean for method, mean in kl.items() if method not in ("Full KV", "future_oracle", "random"))
        self.assertEqual(kl["Full KV"], 0)
        self.assertLessEqual(oracle, best)
        self.assertLess(best, chance)

    def test_every_method_says_what_it_costs_before_the_first_token(self):
        config = json.loads((SOURCE / "configs/compression_cost.json").read_text())
        config["workloads"][0]["words"] = [250]
        config["timing"] = {"repeats": 1, "warmup": 0, "max_new_tokens": 2}
        times = {}
        for method, metric, value in results(config, TIMES):
            times.setdefault(method, {})[metric] = value
        self.assertEqual(len(times), len(config["methods"]))
        for method, found in times.items():
            if method == "pyramidinfer":  # its prefill compresses
                self.assertNotIn("compression_overhead", found)
                continue
            cost = (found["observe_ms"] + found["compress_ms"]) / (found["prefill_ms"] - found["observe_ms"])
            self.assertAlmostEqual(found["compression_overhead"], cost, places=6, msg=method)
            self.assertLessEqual(found["prefill_ms"] + found["compress_ms"], found["time_to_first_token_ms"], msg=method)


if __name__ == "__main__":
    if not (HOME / "models/smollm2-135m").exists():
        print("the default model is absent: run scripts/setup", file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
