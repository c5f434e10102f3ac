"""A run whose database may grow no further stops with a sentence, keeps what it has, and goes on when there is room again.

    python3 tests/end_to_end/disk_full_test.py build/release/bin/kvarena SOURCE_FOLDER

A limit on the size of files stands for the full disk, set at several sizes. Standard library only.
"""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

import tiny_model

KVARENA, SOURCE = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
LIMITS = [64_000, 200_000, 500_000, 900_000]  # bytes: in the schema, in the plan, in the samples


class DiskFull(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        tiny_model.write(self.folder / "model", SOURCE)
        (self.folder / "config.json").write_text(json.dumps({
            "name": "full_disk", "methods": ["full", {"name": "snapkv", "keep": 0.5}, {"name": "tova", "keep": 0.5}],
            "engine": {"max_new_tokens": 24, "noise_floor": 2},
            "models": [{"name": "tiny", "path": str(self.folder / "model"), "dtype": "f32", "template": "none"}],
            "workloads": [{"name": "fact_qa", "things": 3, "filler": 0, "examples": 0, "samples": 20}]}))

    def kvarena(self, *words, limit=None):
        def small_disk():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writes then fail, as they do on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        environment = os.environ | {"KVARENA_HOME": str(self.folder), "OMP_NUM_THREADS": "1"}
        return subprocess.run([KVARENA, *words], cwd=self.folder, env=environment, capture_output=True, text=True,
                              preexec_fn=small_disk if limit else None)

    def database(self, name):
        """What doctor finds in it: whether it is sound, and its content."""
        checks = json.loads(self.kvarena("doctor", "--json", "--database", name).stdout)
        check = next(check for check in checks if check["check"] == "database")
        return check["good"], check["found"].split("content ")[-1]

    def test_it_stops_and_goes_on(self):
        run = ("run", "config.json", "--quiet", "--database")
        self.assertEqual(self.kvarena(*run, "whole.db").returncode, 0)
        whole = self.database("whole.db")
        self.assertTrue(whole[0])
        kept = []
        for limit in LIMITS:
            with self.subTest(limit=limit):
                name = f"{limit}.db"
                stopped = self.kvarena(*run, name, limit=limit)
                self.assertEqual(stopped.returncode, 2, stopped.stderr)
                self.assertIn(f"{name}: found a database that refuses to", stopped.stderr)
                self.assertIn("what was committed is kept", stopped.stderr)
                resumed = self.kvarena(*run, name)
                self.assertEqual(resumed.returncode, 0, resumed.stderr)
                kept.append(int(resumed.stdout.split(" were there already")[0].split()[-1]))
                self.assertEqual(self.database(name), whole)
        self.assertGreater(kept[-1], 0, "no limit lay within the samples")

        with open(self.folder / "whole.db", "r+b") as file:  # and a disk that forgets is seen
            file.seek(5 * 4096)
            file.write(bytes(64))
        self.assertFalse(self.database("whole.db")[0])


unittest.main(argv=sys.argv[:1])
