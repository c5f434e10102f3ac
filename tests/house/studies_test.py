"""scripts/studies: sittings that go on from the database in the tree, pages and index, and what differs when judged again."""

import json
import lzma
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A run adds samples up to its limit, of 3 there are, and its words to ran.jsonl. Scores are those of score.txt.
PROGRAM = """#!{python}
import json, pathlib, sqlite3, sys
root, words = pathlib.Path({root!r}), sys.argv[1:]
if words[0] == "run":
    with open(root / "ran.jsonl", "a") as ran:
        ran.write(json.dumps(words) + "\\n")
    database = sqlite3.connect(words[words.index("--database") + 1])
    for table in ("cells (cell_id, kind, model, workload, method, state, superseded)", "runs (run_id, started_at, finished_at)",
                  "samples (cell_id, sample_id PRIMARY KEY, prompt_sha256, prompt_tokens, output_tokens, finish_reason, active, prediction, run_id, wall_s)",
                  "sample_values (cell_id, sample_id, metric, value, clock, UNIQUE (sample_id, metric))",
                  "series (cell_id, sample_id, name, values_json, clock)"):
        database.execute("CREATE TABLE IF NOT EXISTS " + table)
    database.execute("INSERT INTO cells SELECT 'c', 'quality', 'm', 'w', 'full', 'done', 0 WHERE NOT EXISTS (SELECT 1 FROM cells)")
    database.execute("INSERT INTO runs SELECT COUNT(*), '2026-01-01T00:00:00Z', '2026-01-01T00:30:00Z' FROM runs")
    limit = int(words[words.index("--limit") + 1]) if "--limit" in words else 3
    for i in range(min(limit, 3)):
        database.execute("INSERT OR IGNORE INTO samples SELECT 'c', ?, 'p', 9, 2, 'stop', 1, 'text', MAX(run_id), 1 FROM runs", (f"s{{i}}",))
        score = float((root / "score.txt").read_text())
        database.execute("INSERT OR IGNORE INTO sample_values VALUES ('c', ?, 'f1', ?, 'none')", (f"s{{i}}", score))
        database.execute("INSERT INTO series SELECT 'c', ?1, 'kl_nats', ?2, 'none' WHERE NOT EXISTS (SELECT 1 FROM series WHERE sample_id = ?1)", (f"s{{i}}", f"[{{score}}]"))
    database.commit()
else:
    print("# Title\\n\\n" + " ".join(words[3:]))
"""


class Studies(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        study = {"asks": "What is it?", "config": "c.json", "run": ["--set", "a=[1, 2]"], "grows": 4, "report": ["--bytes", "0.3"],
                 "notes": ["The head is another."]}
        for name, text in (("scripts/build", "#!/bin/sh\n"), ("results/one/study.json", json.dumps(study)), ("score.txt", "0.5"),
                           ("build/release/bin/kvarena", PROGRAM.format(python=sys.executable, root=str(self.root)))):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
            (self.root / name).chmod(0o755)
        for name in ("studies", "runs.py"):
            shutil.copy(ROOT / "scripts" / name, self.root / "scripts" / name)

    def studies(self, *words, code=0):
        run = subprocess.run([sys.executable, self.root / "scripts/studies", *words], capture_output=True, text=True, timeout=60)
        self.assertEqual(code, run.returncode, run.stdout + run.stderr)
        return run.stdout + run.stderr

    def ran(self):
        return [json.loads(line) for line in (self.root / "ran.jsonl").read_text().splitlines()]

    def page(self, name):
        return (self.root / "results" / name).read_text()

    def test_samples_double_and_pages_say_what_was_done(self):
        self.studies("one")
        self.assertEqual([["c.json", "--set", "a=[1, 2]", "--limit", "1"], ["c.json", "--set", "a=[1, 2]", "--limit", "2"],
                          ["c.json", "--set", "a=[1, 2]", "--quiet"]], [words[1:6] if "--limit" in words else words[1:5] for words in self.ran()])
        for told in ("# What is it?", "`kvarena run c.json --set 'a=[1, 2]'`", "- samples a workload: 3", "- evaluations: 3",
                     "- cells: 1, 0 failed, 0 inactive", "- machine hours: 1.50\n- note: The head is another.\n\n## Title", "--format md --bytes 0.3"):
            self.assertIn(told, self.page("one/report.md"))
        self.assertIn("| [one](one/report.md) | What is it? | 3 | 3 | 1, 0 failed, 0 inactive | 1.50 |", self.page("README.md"))

    def test_the_next_sitting_goes_on_from_the_database_in_the_tree(self):
        self.studies("one")
        shutil.rmtree(self.root / "build/studies")
        self.studies("one")
        (self.root / "one.db").write_bytes(lzma.decompress((self.root / "results/one/results.db.xz").read_bytes()))
        self.assertEqual((6,), sqlite3.connect(self.root / "one.db").execute("SELECT COUNT(*) FROM runs").fetchone())

    def test_judging_again_finds_what_differs(self):
        self.studies("one")
        self.assertIn("6 rows compared, 0 differ", self.studies("one", "--again", "2"))
        self.assertRegex(self.page("one/report.md"), r"- judged anew: on 20[0-9-]+, .*, 2 a workload: 6 rows compared, 0 differ\n")
        (self.root / "score.txt").write_text("0.75")
        self.assertIn("one: m, w, s0, full: the results do not have sample_values ('f1', 0.75)", self.studies("one", "--again", "2", code=1))

    def test_values_of_single_steps_stay_where_the_study_says_so(self):
        study = self.root / "results/one/study.json"
        for series, kept, compared in ((True, 3, 6), (False, 0, 4)):
            study.write_text(json.dumps(json.loads(study.read_text()) | {"series": series}))
            shutil.rmtree(self.root / "build/studies", ignore_errors=True)
            self.studies("one")
            (self.root / "one.db").write_bytes(lzma.decompress((self.root / "results/one/results.db.xz").read_bytes()))
            self.assertEqual((kept,), sqlite3.connect(self.root / "one.db").execute("SELECT COUNT(*) FROM series").fetchone())
            self.assertIn(f"{compared} rows compared, 0 differ", self.studies("one", "--again", "2"))

    def test_the_index_names_studies_that_wait_and_unknown_names_are_refused(self):
        self.studies()
        self.assertIn("| one | What is it? | not run yet |", self.page("README.md"))
        self.assertIn("no study two; there are: one", self.studies("two", code=2))


if __name__ == "__main__":
    unittest.main()
