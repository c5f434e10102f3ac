"""The quickstart end to end, on the real model, scaled down.

    python3 tests/end_to_end/quickstart_test.py build/release/bin/kvarena SOURCE_FOLDER

Judges one sample of each task under every method of configs/quickstart.json; checks that verification gave full KV's very
answers, that a run of one task killed with SIGKILL and started again ends with the same results, and that the report is a
page that loads nothing from a network. Standard library only. Exits with 77 (skipped) when the model is absent.
"""

import collections
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

import browser

KVARENA, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
HOME = pathlib.Path(os.environ.get("KVARENA_HOME", pathlib.Path.home() / ".cache" / "kvarena"))
RUN = [str(KVARENA), "run", str(SOURCE / "configs/quickstart.json"), "--limit", "1", "--quiet", "--set",
       "timing.repeats=1", "--set", "timing.warmup=0", "--set", "output.report="]

# Everything that a repetition must reproduce: what was answered and every value that is no measured time.
CONTENT = """
select workload, method, sample_id, prompt_sha256, prediction, finish_reason from v_samples order by 1, 2, 3
"""
VALUES = """
select workload, method, sample_id, metric, value from v_values where clock = 'none' order by 1, 2, 3, 4
"""


def rows(database, query):
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


class Quickstart(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.database = pathlib.Path(cls.folder.name) / "whole.db"
        subprocess.run(RUN + ["--database", str(cls.database)], check=True, stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_verification_answers_exactly_as_full_kv(self):
        answers = {(workload, method, sample): text
                   for workload, method, sample, _, text, _ in rows(self.database, CONTENT)}
        full = {key: text for key, text in answers.items() if key[1] == "Full KV"}
        verified = {key: text for key, text in answers.items() if key[1].startswith("VeriCache")}
        self.assertEqual(len(full), 3)
        self.assertEqual(len(verified), 3)
        for (workload, _, sample), text in verified.items():
            self.assertEqual(text, full[workload, "Full KV", sample])
        kl = [value for _, method, _, metric, value in rows(self.database, VALUES)
              if metric == "kl_nats_sum" and method.startswith("VeriCache")]
        self.assertEqual(kl, [0.0, 0.0, 0.0])

    def test_full_against_full_differs_by_nothing(self):
        again = rows(self.database, "select workload, sample_id, metric, value from v_values where kind = 'noise_floor'")
        first = {row[:3]: row[3] for row in rows(
            self.database, "select workload, sample_id, metric, value from v_values where kind = 'quality' and "
                           "method = 'Full KV'")}
        self.assertEqual(len({row[:2] for row in again}), 3)
        for *place, value in again:
            self.assertEqual(value, first[tuple(place)], place)
        self.assertEqual({value for *_, metric, value in again if metric == "kl_nats_sum"}, {0.0})

    def test_compression_really_saves_bytes(self):
        kept = {}
        for _, method, _, metric, value in rows(self.database, VALUES):
            if metric == "kept_bytes_fraction":
                kept.setdefault(method, []).append(value)
        self.assertEqual(set(kept["Full KV"]), {1.0})
        self.assertTrue(all(value < 0.30 for value in kept["SnapKV, keep 0.25"]), kept)
        # The newest 128 entries stay in 16 bits, which is much of a short prompt: fewer bits must still take less.
        for two, four in zip(kept["KIVI, 2 bits"], kept["KIVI, 4 bits"]):
            self.assertLess(two, four)
            self.assertLess(four, 0.60)

    def test_killed_and_resumed_equals_undisturbed(self):
        seed = random.randrange(10**6)
        draw = random.Random(seed)
        database = pathlib.Path(self.folder.name) / "killed.db"
        one_workload = RUN + ["--set", 'workloads=[{"name": "needle"}]', "--database", str(database)]
        for _ in range(3):
            process = subprocess.Popen(one_workload, stdout=subprocess.DEVNULL)
            time.sleep(draw.uniform(1.0, 6.0))
            process.send_signal(signal.SIGKILL)
            process.wait()
        subprocess.run(one_workload, check=True, stdout=subprocess.DEVNULL)
        for query in (CONTENT, VALUES):
            undisturbed = [row for row in rows(self.database, query) if row[0] == "needle"]
            self.assertGreater(len(undisturbed), 0)
            self.assertEqual(rows(database, query), undisturbed, f"seed {seed}")
        compared = subprocess.run([str(KVARENA), "compare", str(self.database), str(database)], text=True,
                                  capture_output=True)
        self.assertEqual(compared.returncode, 0, compared.stderr)
        self.assertRegex(compared.stdout, r"\b0 better, 0 worse")

    def test_report_is_one_page_that_loads_nothing(self):
        page = pathlib.Path(self.folder.name) / "report.html"
        subprocess.run([str(KVARENA), "report", "--database", str(self.database), "--out", str(page)], check=True,
                       stderr=subprocess.DEVNULL)
        text = page.read_text()
        for loader in ('src="http', 'href="http', "@import", "url(http"):
            self.assertNotIn(loader, text)
        for part in ('id="quality"', 'id="distance"', 'id="trade-off"', 'id="speed"', 'id="provenance"'):
            self.assertIn(part, text)


    def test_report_in_a_browser(self):
        if not browser.chromium():
            self.skipTest("no chromium on PATH")
        folder = pathlib.Path(self.folder.name)
        page = folder / "page.html"
        subprocess.run([str(KVARENA), "report", "--database", str(self.database), "--out", str(page)], check=True,
                       stderr=subprocess.DEVNULL)
        paper = {}
        for width, dark in ((1280, False), (390, False), (1280, True)):
            visit = browser.Visit(page, folder, width=width, dark=dark)
            self.assertEqual(visit.console, [])
            self.assertEqual(visit.requests, [])
            seen_width, _, rows = visit.pixels()
            colours = collections.Counter(pixel for row in rows for pixel in row)
            paper[width, dark], most = colours.most_common(1)[0]
            total = sum(colours.values())
            self.assertGreaterEqual(seen_width, width)
            self.assertGreater(len(colours), 200, "text, marks and lines have many shades")
            self.assertTrue(0.3 < most / total < 0.98, "paper with something on it")
            # Series of the charts are in colours of their own, far from grey.
            vivid = sum(count for pixel, count in colours.items() if max(pixel) - min(pixel) > 90)
            self.assertGreater(vivid, 300)
        self.assertGreater(sum(paper[1280, False]), 3 * 240)
        self.assertLess(sum(paper[1280, True]), 3 * 60)

    def test_the_browser_test_would_notice(self):
        if not browser.chromium():
            self.skipTest("no chromium on PATH")
        page = pathlib.Path(self.folder.name) / "bad.html"
        page.write_text('<img src="http://127.0.0.1:9/picture.png"><script>undefined_name()</script>')
        visit = browser.Visit(page, self.folder.name)
        self.assertTrue(visit.console)
        self.assertEqual(visit.requests, ["http://127.0.0.1:9/picture.png"])


if not (HOME / "models" / "smollm2-135m").exists():
    print(f"skipped: {HOME}/models/smollm2-135m is absent; scripts/setup fetches it")
    sys.exit(77)
unittest.main(argv=sys.argv[:1])
