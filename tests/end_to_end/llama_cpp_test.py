"""llama.cpp's server under two dtypes of its cache, judged by `kvarena run` on the default model; skipped where the package
xllamacpp or the model is absent.

    python3 tests/end_to_end/llama_cpp_test.py build/release/bin/kvarena SOURCE_FOLDER
"""

import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import unittest

try:
    import xllamacpp  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}; pip install xllamacpp")
    sys.exit(77)

HOME = pathlib.Path(os.environ.get("KVARENA_HOME", pathlib.Path.home() / ".cache" / "kvarena"))
MODEL = HOME / "models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"
if not MODEL.exists():
    print(f"skipped: no {MODEL}; scripts/setup brings it")
    sys.exit(77)
KVARENA, SOURCE = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])

SERVE = """
import sys, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.hostnames, p.port = sys.argv[1], ["127.0.0.1"], 0
p.n_ctx, p.n_parallel, p.warmup, p.endpoint_metrics = 2048, 2, False, True
p.cpuparams.n_threads = 1
p.cache_type_k = p.cache_type_v = getattr(xllamacpp.ggml_type, sys.argv[2])
server = xllamacpp.Server(p)
print("listening", server.listening_address, flush=True)
sys.stdin.read()
"""


class LlamaServer:
    def __init__(self, dtype):
        self.process = subprocess.Popen([sys.executable, "-c", SERVE, str(MODEL), dtype], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if line.startswith("listening "):
                self.url = line.split()[1]
                return
        raise RuntimeError(f"llama.cpp's server did not start with {dtype}")

    def stop(self):
        self.process.kill()
        self.process.communicate()


class LlamaCpp(unittest.TestCase):
    def test_two_settings_in_one_database(self):
        servers = [LlamaServer(dtype) for dtype in ("GGML_TYPE_F16", "GGML_TYPE_Q8_0")]
        for server in servers:
            self.addCleanup(server.stop)
        config = {
            "name": "llama_cpp",
            "models": [{"name": "smollm2-135m", "endpoint": servers[0].url, "engine": "llama.cpp"}],
            "workloads": [{"name": "needle", "words": [150], "depths": [50], "limit": 1}],
            "methods": [{"name": "server", "label": "f16"},
                        {"name": "server", "label": "q8_0", "endpoint": servers[1].url,
                         "settings": {"cache-type-k": "q8_0", "cache-type-v": "q8_0"}}],
            "engine": {"max_new_tokens": 16, "noise_floor": 1},
            "timing": {"repeats": 1, "warmup": 0, "batch": 2, "max_new_tokens": 8, "ignore_eos": True}}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "config.json"
            path.write_text(json.dumps(config))
            database = pathlib.Path(folder) / "results.db"
            subprocess.run([KVARENA, "run", str(path), "--database", str(database), "--quiet"], check=True, cwd=folder)
            report = pathlib.Path(folder) / "report.md"
            subprocess.run([KVARENA, "report", "--database", str(database), "--out", str(report)], check=True, cwd=folder)
            self.assertIn("Behind an endpoint", report.read_text())
            rows = sqlite3.connect(database)
            self.check(rows)
            rows.close()

    def check(self, rows):
        cells = rows.execute("SELECT kind, method, state, protocol_json, cell_id FROM cells ORDER BY kind, position").fetchall()
        self.assertEqual([("noise_floor", "f16"), ("quality", "f16"), ("quality", "q8_0"), ("timing", "f16"),
                          ("timing", "q8_0")], [cell[:2] for cell in cells])
        for kind, method, state, card, cell in cells:
            self.assertIn(state, ("done", "inactive") if method == "q8_0" else ("done",))
            self.assertTrue(json.loads(card)["engine"].startswith("llama.cpp "))
            answer, tokens = rows.execute("SELECT prediction, output_tokens FROM samples WHERE cell_id = ?", [cell]).fetchone()
            values = dict(rows.execute("SELECT metric, value FROM sample_values WHERE cell_id = ?", [cell]))
            print(f"{kind} {method}: {state}, {tokens} tokens {answer!r}, {values}")
            self.assertGreater(tokens, 0)
            self.assertEqual(0, values["usage_difference_tokens"])
            if kind == "timing":
                self.assertEqual(8, tokens)
                self.assertEqual(0, values["failed_requests"])
                self.assertGreater(values["end_to_end_ms"], values["time_to_first_token_ms"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
