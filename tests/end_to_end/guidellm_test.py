"""guidellm's load on `kvarena serve`: every request is answered, and both count the same. Skipped where it is absent.

    python3 tests/end_to_end/guidellm_test.py build/release/bin/kvarena SOURCE_FOLDER
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import served

if importlib.util.find_spec("guidellm") is None:
    print("skipped: no guidellm; pip install guidellm")
    sys.exit(77)

KVARENA, SOURCE = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
MODEL, REQUESTS, TOKENS = "tiny@streaming_llm:tokens=32", 24, 16


class GuideLlm(unittest.TestCase):
    def test_both_count_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            server = served.Server(KVARENA, SOURCE, folder, [MODEL.partition("@")[2]])
            rows = pathlib.Path(folder, "rows.json")
            rows.write_text(json.dumps([{"prompt": f"{row} " + "one two three " * 20, "output_tokens_count": TOKENS}
                                        for row in range(REQUESTS)]))
            words = [sys.executable, "-m", "guidellm", "run", "--disable-console-interactive",
                     "--backend", f"kind=openai_http,target=http://127.0.0.1:{server.port},model={MODEL},"
                                  "request_format=/v1/completions",
                     "--profile", "kind=concurrent,streams=4", "--constraint", f"kind=max_requests,count={REQUESTS}",
                     "--data", f"kind=json_file,path={rows}", "--output", f"kind=json,path={folder}/report.json"]
            ran = subprocess.run(words, cwd=folder, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True)
            self.assertEqual(0, ran.returncode, ran.stdout[-2000:] + ran.stderr[-2000:])
            told = json.loads(pathlib.Path(folder, "report.json").read_text())["benchmarks"][0]
            counts = server.metrics()
            self.assertEqual(0, server.stop())
        totals, of_model = told["metrics"]["request_totals"], f'{{model="{MODEL}"}}'
        self.assertEqual((REQUESTS, REQUESTS), (totals["successful"], totals["total"]))
        self.assertEqual(REQUESTS, counts["kvarena_request_seconds_count" + of_model])
        self.assertEqual(REQUESTS * TOKENS, counts["kvarena_answer_tokens_total" + of_model])
        theirs = told["metrics"]["output_token_count"]["successful"]
        self.assertEqual(TOKENS, theirs["mean"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
