"""A sweep with methods that misbehave in every way, whose processes are killed at random, loses nothing.

    python3 tests/end_to_end/torture_test.py build/release/bin/kvarena SOURCE_FOLDER libbreaking_plugin.so [--large] [--sanitized]

The plugin's methods segfault, abort, exit, leak, hang, throw, return NaN, infinity and wrong shapes, beside healthy ones. The
runner and its workers get SIGKILL at random moments; at last the same command runs undisturbed. Then every healthy cell must
hold, bit for bit, what a run of the healthy methods alone holds that nobody disturbed, every sick cell must have failed
with its reason, and no sample may be there twice or missing. Standard library only; the seed is printed.
"""

import json
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

import tiny_model

KVARENA, SOURCE, PLUGIN = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
LARGE = "--large" in sys.argv
WORKLOADS, HEALTHY, KILLS = (12, 17, 50) if LARGE else (1, 4, 5)
SAMPLES = 3
SANITIZED = "--sanitized" in sys.argv
PATIENCE_S, MEMORY_MIB = (20, 4000) if SANITIZED else (4, 700)  # beyond what a sample takes on a loaded machine
for options in ("ASAN_OPTIONS", "TSAN_OPTIONS") if SANITIZED else ():  # else a sanitizer ends what meets that signal
    os.environ[options] = os.environ.get(options, "") + ":handle_segv=0"

# Text in the reason of each failure. On a loaded machine a leak may meet the time limit first.
LATE = f"longer than the {PATIENCE_S} s"
SICK = {"segfault": ("signal 11",), "abort": ("signal 6",), "exit": ("exit code 3",), "leak": ("MiB, more than", LATE),
        "hang": (LATE,), "throw": ("thrown by a method",), "nan": ("not a number",), "infinite": ("an infinite score",),
        "shape": ("scores of shape [",)}

CONTENT = """
select c.workload, c.method, s.sample_id, s.prompt_sha256, s.prediction, s.finish_reason, s.activity_json
from samples s join cells c using (cell_id) order by 1, 2, 3
"""
VALUES = """
select c.workload, c.method, v.sample_id, v.metric, v.value from sample_values v join cells c using (cell_id)
where v.clock = 'none' order by 1, 2, 3, 4
"""
SERIES = """
select c.workload, c.method, s.sample_id, s.name, s.values_json from series s join cells c using (cell_id)
where s.clock = 'none' order by 1, 2, 3, 4
"""


def rows(database, query):
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def children(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def workers_of(pid):
    """Its workers; a child that tries a plugin out while the program starts is none."""
    found = []
    for child in children(pid):
        try:
            words = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"worker" in words:
            found.append(child)
    return found


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Torture(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)
        tiny_model.write(self.folder / "model", SOURCE)
        seed = random.randrange(10**6)
        print("seed", seed)
        self.draw = random.Random(seed)

    def config(self, name, methods):
        path = self.folder / name
        path.write_text(json.dumps({
            "name": "torture", "methods": methods, "engine": {"max_new_tokens": 4, "noise_floor": 0},
            "models": [{"name": "tiny", "path": str(self.folder / "model"), "dtype": "f32", "template": "none"}],
            "workloads": [{"name": "fact_qa", "label": f"facts {i}", "things": 3, "filler": 0, "examples": 0,
                           "samples": SAMPLES, "seed": i} for i in range(WORKLOADS)]}))
        return path

    def command(self, config, database, *options):
        return [str(KVARENA), "run", str(config), "--database", str(database), "--quiet", *options]

    def run_to_its_end(self, *words):
        return subprocess.run(words, env=self.environment(), capture_output=True, text=True)

    def environment(self):
        return os.environ | {"KVARENA_PLUGINS": str(PLUGIN), "KVARENA_HOME": str(self.folder), "OMP_NUM_THREADS": "1"}

    def test_nothing_is_lost(self):
        healthy = ["full"] + [{"name": "steady", "keep": round(0.1 + 0.05 * i, 2), "label": f"steady {i}"}
                              for i in range(HEALTHY - 1)]
        # Most break at once, some only where a prompt's length meets a condition.
        sick = [{"name": "breaking", "how": how, "every": 1 + 2 * (i % 2), "keep": 0.5, "label": how}
                for i, how in enumerate(SICK)]
        mixed = healthy[:2] + sick + healthy[2:]
        expected = self.folder / "undisturbed.db"
        finished = self.run_to_its_end(*self.command(self.config("healthy.json", healthy), expected, "--in-process"))
        self.assertEqual(finished.returncode, 0, finished.stderr)

        database = self.folder / "tortured.db"
        words = self.command(self.config("mixed.json", mixed), database, "--time-limit", str(PATIENCE_S),
                             "--memory-limit", str(MEMORY_MIB))
        kills = self.kill_at_random(words)
        finished = self.run_to_its_end(*words, "--retry-failed")
        self.assertEqual(finished.returncode, 1, finished.stderr)
        self.assertIn("add --in-process --retry-failed", finished.stderr)
        print(kills)

        names = {method if isinstance(method, str) else method["label"] for method in healthy}
        for query in (CONTENT, VALUES, SERIES):
            kept = [row for row in rows(database, query) if row[1] in names]
            self.assertEqual(kept, rows(expected, query))
        counts = rows(database, "select method, state, count(*), sum(done_samples) from v_cells group by 1, 2")
        for method, state, cells, samples in counts:
            if method in names:
                self.assertEqual((state, cells, samples), ("done", WORKLOADS, WORKLOADS * SAMPLES), method)
        self.check_the_sick(database)
        self.assertEqual(rows(database, "pragma integrity_check"), [("ok",)])
        again = self.run_to_its_end(*words)
        self.assertIn("; 0 evaluated", again.stdout)

    def check_the_sick(self, database):
        seen = {}
        for method, state, reason, log in rows(database, "select method, state, reason, failure_log from cells"):
            if method not in SICK:
                continue
            seen.setdefault(method, set()).add(state)
            if state == "failed":
                self.assertTrue(any(words in reason for words in SICK[method]), (method, reason))
                if method in ("segfault", "abort", "exit", "leak", "hang"):
                    self.assertIn(f"breaking by {method}", log)
                if method in ("segfault", "abort", "hang"):
                    self.assertIn(f"{PLUGIN}+0x", log)  # a frame of the method
        self.assertEqual(set(seen), set(SICK))
        for method, states in seen.items():
            self.assertIn("failed", states, method)
            self.assertLessEqual(states, {"failed", "done"}, method)

    def kill_at_random(self, words):
        """Starts the sweep again and again; kills its runner or its worker. Returns what was killed how often."""
        kills = {"runner": 0, "worker": 0}
        process = None
        while sum(kills.values()) < KILLS:
            if process is None or process.poll() is not None:
                process = subprocess.Popen(words + ["--retry-failed"], env=self.environment(), stdout=subprocess.DEVNULL,
                                           stderr=subprocess.DEVNULL)
            # Mostly once a worker is there, whatever the machine's speed; sometimes while the program starts.
            patient = self.draw.random() < 0.9
            while patient and not workers_of(process.pid) and process.poll() is None:
                time.sleep(0.02)
            time.sleep(self.draw.uniform(0, 1.5))
            workers = workers_of(process.pid)
            if process.poll() is None and workers and self.draw.random() < 0.5:
                try:
                    os.kill(workers[0], signal.SIGKILL)
                    kills["worker"] += 1
                except ProcessLookupError:
                    pass
            elif process.poll() is None:
                started = children(process.pid)
                process.kill()
                process.wait()
                kills["runner"] += 1
                for child in started:
                    self.assert_ends(child)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)  # asks it to stop after the sample in work
            self.assertIn(process.wait(), (130, 0, 1))
        return kills

    def assert_ends(self, worker):
        deadline = time.monotonic() + 60
        while alive(worker):
            self.assertLess(time.monotonic(), deadline, "a process lives on without its runner")
            time.sleep(0.01)


unittest.main(argv=sys.argv[:1])
