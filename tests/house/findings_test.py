"""scripts/findings: the table is what the databases hold, on samples that all its settings have."""

import json
import lzma
import pathlib
import re
import runpy
import sqlite3
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = runpy.run_path(str(ROOT / "scripts/findings"))
SETTINGS, MODELS, BASELINE = NAMES["SETTINGS"], NAMES["MODELS"], NAMES["BASELINE"]
TABLES = ("cells (cell_id, kind, model, workload, method, superseded)", "samples (cell_id, sample_id, context)",
          "sample_values (cell_id, sample_id, metric, value)", "series (cell_id, name, values_json)")


def findings(root, *words):
    return subprocess.run([sys.executable, ROOT / "scripts/findings", "--root", root, *words], capture_output=True, text=True, timeout=60)


class Findings(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "docs").mkdir()
        (self.root / "docs/findings.md").write_text(f"# Findings\n\n{NAMES['BEGIN']}\n{NAMES['END']}\n\nText.\n")
        self.store("leaderboard", self.qualities())
        self.store("leaderboard_cost", [(model, "2k tokens", setting, "timing", [100.0, 200.0 if setting == SETTINGS[0] else 100.0, 900.0])
                                        for model in MODELS for setting in (BASELINE, *SETTINGS)])

    def qualities(self):
        """Two contexts of two questions: the first setting is at 1 and 3 in one, at 9 in the other, of which it lacks a question."""
        for model in MODELS:
            for question in ("seen", "unseen"):
                for setting in SETTINGS:
                    first = setting == SETTINGS[0]
                    yield model, f"Facts, {question}", setting, "quality", [1, 3, 9] if first else [4, 4, 4, 400]

    def store(self, study, rows):
        path = self.root / "results" / study
        path.mkdir(parents=True)
        database = sqlite3.connect(path / "r.db")
        for table in TABLES:
            database.execute(f"CREATE TABLE {table}")
        for cell, (model, workload, setting, kind, values) in enumerate(rows):
            database.execute("INSERT INTO cells VALUES (?, ?, ?, ?, ?, 0)", (cell, kind, model, workload, setting))
            for name in ("time_to_first_token_ms", "inter_token_latency_ms") if kind == "timing" else ():
                database.execute("INSERT INTO series VALUES (?, ?, ?)", (cell, name, json.dumps(values)))
            for i, value in enumerate(values if kind == "quality" else ()):
                database.execute("INSERT INTO samples VALUES (?, ?, ?)", (cell, f"s{i}", str(i // 2)))
                for metric, of in (("kl_nats", value), ("kept_bytes_fraction", 0.25)):
                    database.execute("INSERT INTO sample_values VALUES (?, ?, ?, ?)", (cell, f"s{i}", metric, of))
        database.commit()
        (path / "results.db.xz").write_bytes(lzma.compress((path / "r.db").read_bytes()))

    def test_means_wins_of_contexts_and_times(self):
        self.assertEqual(0, findings(self.root).returncode)
        page = (self.root / "docs/findings.md").read_text()
        self.assertIn(f"| `{SETTINGS[0]}` | 25.0% | 5.50 | 5.50 | 5.50 | 5.50 | 1 of 2, 1 of 2 | 2.00 x | 2.00 x |", page)
        self.assertIn(f"| `{NAMES['RIVAL']}` | 25.0% | 4.00 | 4.00 | 4.00 | 4.00 | – | 1.00 x | 1.00 x |", page)
        self.assertTrue(page.endswith(f"{NAMES['END']}\n\nText.\n"))
        self.assertEqual(0, findings(self.root, "--check").returncode)

    def test_another_number_is_named(self):
        findings(self.root)
        page = self.root / "docs/findings.md"
        page.write_text(re.sub("5.50", "4.32", page.read_text(), count=1))
        check = findings(self.root, "--check")
        self.assertEqual((1, True), (check.returncode, "run scripts/findings" in check.stderr))
        page.write_text("# Findings\n")
        self.assertIn("no lines", findings(self.root).stderr)


if __name__ == "__main__":
    unittest.main()
