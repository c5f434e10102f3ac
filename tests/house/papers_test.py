"""scripts/papers: what it runs, shares, leaves out and goes on with, over a program that answers as kvarena does."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Answers from items.json; a run adds a sample to its database and its words to ran.json.
PROGRAM = """#!{python}
import json, pathlib, sqlite3, sys
root, words = pathlib.Path({root!r}), sys.argv[1:]
if words[0] == "papers":
    print(json.dumps({{"items": json.loads((root / "items.json").read_text())}}))
elif words[0] == "run":
    with open(root / "ran.jsonl", "a") as ran:
        ran.write(json.dumps(words) + "\\n")
    database = sqlite3.connect(words[words.index("--database") + 1])
    database.execute("CREATE TABLE IF NOT EXISTS cells (cell_id, kind, workload, superseded)")
    database.execute("CREATE TABLE IF NOT EXISTS samples (cell_id, sample_id)")
    database.execute("INSERT INTO cells SELECT 'c', 'quality', 'w', 0 WHERE NOT EXISTS (SELECT 1 FROM cells)")
    database.execute("INSERT INTO samples SELECT 'c', COUNT(*) FROM samples")
    database.commit()
elif words[0] == "status":
    print(json.dumps([{{"evaluations": {{"done": 3, "planned": 4}}, "failures": [{{"state": "missing", "reason": "weights x"}}],
                        "project_made_data": [{{"instead_of": "LongBench"}}]}}]))
else:
    print("# Title\\n\\n2 of 5 published numbers have one of ours beside them.\\n")
"""


def item(name, command, timed=False):
    return {"item": name, "title": f"shows {name}", "config": "configs/one.json", "published": 5, "timed": timed, "notes": ["a reading"],
            "state": "needs the model large", "needs": {"judged_metrics": ["marks"]}, "commands": {"two_cores": command}}


class Papers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        program = PROGRAM.format(python=sys.executable, root=str(self.root))
        items = [item("a/timed", "kvarena run t.json", timed=True), item("a/one", "kvarena run c.json --set 'methods[0].k=[1, 2]'"),
                 item("b/same", "kvarena run c.json --set 'methods[0].k=[1, 2]'"), {"item": "b/diagram"}]
        for name, text in (("scripts/build", "#!/bin/sh\n"), ("build/release/bin/kvarena", program),
                           ("configs/one.json", json.dumps({"models": ["large"]})), ("items.json", json.dumps(items))):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
            (self.root / name).chmod(0o755)
        for name in ("papers", "runs.py"):
            shutil.copy(ROOT / "scripts" / name, self.root / "scripts" / name)

    def papers(self, *words):
        run = subprocess.run([sys.executable, self.root / "scripts/papers", *words], capture_output=True, text=True, timeout=60)
        self.assertEqual(0, run.returncode, run.stdout + run.stderr)
        return run.stdout

    def ran(self):
        return [json.loads(line) for line in (self.root / "ran.jsonl").read_text().splitlines()]

    def page(self, name):
        return (self.root / "reports/papers" / name).read_text()

    def test_items_of_one_command_share_a_run_and_timed_ones_come_last(self):
        self.assertIn("3 of 3 items", self.papers())
        self.assertEqual(["c.json", "t.json"], [words[1] for words in self.ran()])
        self.assertIn("methods[0].k=[1, 2]", self.ran()[0], "a setting in quotes is one word")
        for told in ("# a/one: shows a/one", "- the paper's models: large", "- data: project-made samples, not LongBench",
                     "- missing: a judge model's marks, marks", "- missing: weights x", "- note: a reading", "## Title", "2 of 5"):
            self.assertIn(told, self.page("a/one.md"))
        self.assertIn("[one](one.md)", self.page("b/same.md"))
        self.assertNotIn("## Title", self.page("b/same.md"))
        self.assertIn("| [one](one.md) | shows a/one | 3 of 4 | 1 | 2 of 5 | needs the model large |", self.page("a/README.md"))

    def test_what_is_left_out_is_named_and_what_was_there_stays(self):
        self.assertIn("left: a/timed", self.papers("--untimed"))
        self.assertIn("| timed | shows a/timed | not run yet |", self.page("a/README.md"))
        shutil.rmtree(self.root / "build/papers")
        self.papers("--only", "a/timed")
        self.assertEqual(["c.json", "t.json"], [words[1] for words in self.ran()])
        self.assertIn("| [one](one.md) | shows a/one | 3 of 4 |", self.page("a/README.md"))

    def test_no_time_runs_nothing(self):
        self.papers("--minutes", "0.0000001")
        self.assertFalse((self.root / "ran.jsonl").exists())


if __name__ == "__main__":
    unittest.main()
