"""`kvarena status` while a run writes, after it was killed, and at its end; the log of a run.

    python3 tests/end_to_end/status_test.py build/release/bin/kvarena SOURCE_FOLDER

Runs the program on a random model. Standard library only.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import tiny_model

KVARENA, SOURCE = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])


class Status(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.environment = os.environ | {"KVARENA_HOME": scratch.name, "OMP_NUM_THREADS": "1"}
        tiny_model.write(self.folder / "model", SOURCE)

    def write(self, samples, methods=("full", {"name": "snapkv", "keep": 0.5})):
        (self.folder / "config.json").write_text(json.dumps({
            "name": "sweep", "methods": methods,
            "engine": {"max_new_tokens": 16, "noise_floor": 0},
            "models": [{"name": "tiny", "path": str(self.folder / "model"), "dtype": "f32", "template": "none"}],
            "workloads": [{"name": "fact_qa", "things": 3, "filler": 0, "examples": 0, "samples": samples}]}))

    def start(self):
        return subprocess.Popen([KVARENA, "run", "config.json", "--quiet", "--database", "r.db"], cwd=self.folder,
                                env=self.environment, stderr=subprocess.PIPE, text=True)

    def status(self, *words):
        return subprocess.run([KVARENA, "status", "r.db", *words], cwd=self.folder, capture_output=True, text=True)

    def of_programs(self):
        return json.loads(self.status("--json").stdout)[0]

    def test_from_the_first_sample_to_the_last(self):
        self.write(samples=2000)
        run = self.start()
        self.addCleanup(run.stderr.close)
        while not (self.folder / "r.db").exists() or self.of_programs()["evaluations"]["done"] == 0:
            self.assertIsNone(run.poll(), "it ended before it could be looked at")
            time.sleep(0.05)
        now = self.of_programs()
        self.assertEqual(now["state"], "running")
        self.assertEqual(now["evaluations"]["planned"], 4000)
        self.assertGreater(now["evaluations"]["left"], 0)
        self.assertGreater(now["worker_bytes"], 1 << 20)
        text = self.status().stdout
        self.assertIn("sweep: running", text)
        self.assertIn(f"by process {run.pid} on", text)

        run.kill()
        run.wait()
        killed = self.of_programs()
        self.assertEqual(killed["state"], "killed")
        self.assertIsNone(killed["worker_bytes"])
        self.assertIn("killed", self.status().stdout)

    def test_what_has_ended(self):
        self.write(samples=3)
        run = self.start()
        run.communicate()
        now = self.of_programs()
        self.assertEqual((now["state"], now["evaluations"]["done"], now["evaluations"]["left"]), ("finished", 6, 0))
        self.assertEqual(now["failures"], [])
        refused = self.status("--jsn")
        self.assertEqual(refused.returncode, 2)
        absent = subprocess.run([KVARENA, "status", "no.db"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(absent.returncode, 2)
        self.assertIn("no.db", absent.stderr)


    def test_a_log_tells_each_thing_that_happens(self):
        self.write(samples=3)
        words = [KVARENA, "run", "config.json", "--database", "r.db", "--log", "log.jsonl", "--verbose"]
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        events = [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()]
        names = [event["event"] for event in events]
        self.assertEqual(names, ["run_began", "model_loaded"] + 3 * ["sample_evaluated"] + 2 * ["cell_ended"] + ["run_ended"])
        self.assertEqual([(event["done"], event["total"]) for event in events if event["event"] == "sample_evaluated"],
                         [(2, 6), (4, 6), (6, 6)])
        for name in set(names):
            self.assertIn(f"{name} ", done.stderr)

        again = subprocess.run(words[:-1], cwd=self.folder, env=self.environment, capture_output=True, text=True)
        self.assertNotIn("run_began ", again.stderr)
        events = [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()][len(names):]
        self.assertEqual([event["event"] for event in events], ["run_began", "run_ended"])
        self.assertEqual((events[0]["done"], events[1]["evaluated"]), (6, 0))

    def test_a_method_without_its_weights_is_missing_until_they_are_there(self):
        self.write(samples=2, methods=["full", {"name": "kvzap", "keep": 0.5, "kind": "linear"}])
        dry = subprocess.run([KVARENA, "run", "config.json", "--dry-run"], cwd=self.folder, env=self.environment,
                             capture_output=True, text=True)
        self.assertIn("missing: weights of kvzap-linear", dry.stdout)

        def run():
            run = self.start()
            self.addCleanup(run.stderr.close)
            self.assertEqual(run.wait(timeout=100), 0, "missing weights are no failure")
            return run.stderr.read()
        fit = f"kvarena fit kvzap:kind=linear --model {self.folder / 'model'}"
        self.assertIn(fit, run())
        self.assertEqual(self.of_programs()["cells"], {"done": 1, "missing": 1})
        self.assertIn("kvzap keep=0.5 kind=linear: weights of kvzap-linear", self.status().stdout)
        report = subprocess.run([KVARENA, "report", "--database", "r.db", "--format", "md"], cwd=self.folder,
                                env=self.environment, capture_output=True, text=True).stdout
        self.assertIn("1 cells whose method's weights are missing", report)
        self.assertIn("missing: weights of kvzap-linear", report)

        subprocess.run([KVARENA, *fit.split()[1:], "--samples", "1", "--quiet"], cwd=self.folder, env=self.environment,
                       check=True, capture_output=True)
        self.assertNotIn("missing", run())
        self.assertEqual(self.of_programs()["cells"], {"done": 2})


unittest.main(argv=sys.argv[:1])
