"""Three shards side by side, merged in any order, hold what one run holds; contradictions are refused.

    python3 tests/end_to_end/shard_test.py build/release/bin/kvarena SOURCE_FOLDER

Runs the program on a random model. Standard library only.
"""

import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import unittest

import tiny_model

KVARENA, SOURCE = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])


class Shards(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        tiny_model.write(self.folder / "model", SOURCE)
        (self.folder / "config.json").write_text(json.dumps({
            "name": "shards", "methods": ["full", {"name": "snapkv", "keep": 0.5}],
            "engine": {"max_new_tokens": 4, "noise_floor": 2},
            "models": [{"name": "tiny", "path": str(self.folder / "model"), "dtype": "f32", "template": "none"}],
            "workloads": [{"name": "fact_qa", "things": 3, "filler": 0, "examples": 0, "samples": 5}]}))

    def kvarena(self, *words):
        environment = os.environ | {"KVARENA_HOME": str(self.folder), "OMP_NUM_THREADS": "1"}
        return subprocess.run([KVARENA, *words], cwd=self.folder, env=environment, capture_output=True, text=True)

    def content(self, database):
        checks = json.loads(self.kvarena("doctor", "--json", "--database", database).stdout)
        found = next(check["found"] for check in checks if check["check"] == "database")
        return found.split("content ")[1]

    def test_shards_become_one(self):
        self.assertEqual(self.kvarena("run", "config.json", "--quiet", "--database", "whole.db").returncode, 0)
        for i in range(3):
            done = self.kvarena("run", "config.json", "--quiet", "--shard", f"{i}/3", "--database", f"part{i}.db")
            self.assertEqual(done.returncode, 0, done.stderr)
        merged = self.kvarena("merge", "merged.db", "part2.db", "part0.db", "part1.db")
        self.assertEqual(merged.returncode, 0, merged.stderr)
        self.assertEqual(self.content("merged.db"), self.content("whole.db"))
        again = self.kvarena("merge", "merged.db", "part0.db")
        self.assertIn("0 samples added", again.stdout)
        self.assertIn("0 evaluated, 12 were there already", self.kvarena("run", "config.json", "--quiet", "--database",
                                                                      "merged.db").stdout)

        connection = sqlite3.connect(self.folder / "part0.db")
        connection.execute("update samples set prediction = 'something else'")
        connection.commit()
        connection.close()
        refused = self.kvarena("merge", "merged.db", "part0.db")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("with another answer than in merged.db", refused.stderr)
        self.assertEqual(self.content("merged.db"), self.content("whole.db"))

    def test_a_shard_is_a_part(self):
        self.assertIn("PART: found nothing", self.kvarena("merge", "merged.db").stderr)
        refused = self.kvarena("run", "config.json", "--shard", "3/3")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--shard: found 3/3, expected i/n", refused.stderr)


unittest.main(argv=sys.argv[:1])
