"""`kvarena score` and `kvarena judge` with a judge model, and `kvarena questions` with a writer, behind an
OpenAI-compatible endpoint, played by a local server.

    python3 tests/end_to_end/judge_endpoint_test.py build/release/bin/kvarena SOURCE_FOLDER
"""

import http.server
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import threading
import unittest

import tiny_model

KVARENA, SOURCE = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
KEY = "sk-secret-0123456789"
MARKS = json.dumps({"Analysis": "fine", "Relevance": 5, "Accuracy": 5, "Coherence": 4, "Clarity": 4,
                    "Breadth and Depth": 3, "Reading Experience": 3})


class Endpoint(http.server.BaseHTTPRequestHandler):
    """Answers what the test has queued, else with marks; remembers what it was asked."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers.get("Authorization"), body))
        status, text = self.server.queue.pop(0) if self.server.queue else (200, MARKS)
        reply = text if status != 200 else json.dumps({
            "choices": [{"message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 100}})
        self.send_response(status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.encode())

    def log_message(self, *_):
        pass


class WithEndpoint(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
        self.server.asked, self.server.queue, self.server.headers = [], [], {}
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.folder = tempfile.TemporaryDirectory()
        self.rows = pathlib.Path(self.folder.name) / "answers.jsonl"
        self.rows.write_text(json.dumps({"prompt": "Write about $RESPONSE$ ferries.", "response": "Ferries float."}))

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()


class Judge(WithEndpoint):
    def score(self, *more, metric="judged_quality", key=KEY, user=""):
        url = f"http://{user}127.0.0.1:{self.server.server_port}/v1/"
        return subprocess.run(
            [KVARENA, "score", "--metric", metric, "--mean", "--judge-url", url, "--judge-model", "judge-1",
             "--judge-cache", f"{self.folder.name}/cache", "--judge-price-in", "2", "--judge-price-out", "8",
             *more, str(self.rows)],
            env={**os.environ, "KVARENA_JUDGE_KEY": key}, capture_output=True, text=True, timeout=60)

    def test_asks_the_official_question_and_shows_the_cost(self):
        run = self.score()
        self.assertEqual(run.returncode, 0, run.stderr)
        result = json.loads(run.stdout)
        self.assertAlmostEqual(result["table_value"], 75)
        self.assertEqual(result["judge"], "judge-1")
        (path, authorization, body), = self.server.asked
        self.assertEqual((path, authorization), ("/v1/chat/completions", "Bearer " + KEY))
        self.assertEqual((body["model"], body["temperature"], body["max_tokens"]), ("judge-1", 0.5, 1024))
        prompt = body["messages"][0]["content"]
        self.assertTrue(prompt.startswith("You are an expert in evaluating text quality."))
        self.assertIn("<User Request>\n\nWrite about $RESPONSE$ ferries.\n\n</User Request>", prompt)
        self.assertIn("<Response>\n\nFerries float.\n\n</Response>", prompt)
        self.assertIn("1 answers, 0 of them from the cache, 0 retries; 1000 + 100 tokens, cost 0.0028", run.stderr)

    def test_a_needle_is_marked_by_its_own_rubric(self):
        self.rows.write_text(json.dumps({"prompt": "long context", "question": "What is best?", "needle": "Sit in the park.",
                                         "answers": ["the park"], "response": "Sitting."}))
        self.server.queue = [(200, "Good, but I give no mark."), (200, "Minor omissions. Rating: [[7]]")]
        run = self.score(metric="judged_needle")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertAlmostEqual(json.loads(run.stdout)["table_value"], 7)
        body = self.server.asked[0][2]
        self.assertEqual(body["temperature"], 0)
        system, user = body["messages"]
        self.assertEqual(system, {"role": "system", "content": "You are a helpful assistant."})
        self.assertIn("[Ground truth]\nSit in the park.\nBegin your evaluation", user["content"])
        self.assertIn("[Question]\nWhat is best?\n\n[The Start of Assistant's Answer]\nSitting.\n", user["content"])

    def test_a_metric_without_a_question_says_so(self):
        run = self.score(metric="rouge_l")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn('metric "rouge_l", which no judge is asked for', run.stderr)
        self.assertEqual(self.server.asked, [])

    def test_what_was_paid_for_is_not_asked_again(self):
        self.score()
        again = self.score()
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(len(self.server.asked), 1)
        self.assertIn("1 of them from the cache", again.stderr)
        self.assertIn("cost 0.0000", again.stderr)

    def test_tries_again_when_the_endpoint_stumbles(self):
        self.server.queue = [(503, "busy"), (429, "slow down")]
        run = self.score()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(len(self.server.asked), 3)
        self.assertIn("2 retries", run.stderr)

    def test_draws_again_when_the_marks_cannot_be_read(self):
        self.server.queue = [(200, "I would say good."), (200, "```json\n" + MARKS + "\n```")]
        run = self.score()
        self.assertAlmostEqual(json.loads(run.stdout)["table_value"], 75)
        self.assertEqual(len(self.server.asked), 2)

    def test_gives_up_in_a_sentence(self):
        self.server.queue = [(401, f"the key {KEY} is not known")]
        run = self.score()
        self.assertNotEqual(run.returncode, 0)
        self.assertEqual(len(self.server.asked), 1)
        self.assertIn("HTTP 401: the key (key) is not known", run.stderr)
        self.assertIn("check KVARENA_JUDGE_KEY", run.stderr)
        self.server.queue = [(500, "broken")] * 2
        run = self.score("--judge-tries", "2")
        self.assertIn("HTTP 500: broken (after 2 tries)", run.stderr)
        self.server.queue = [(200, 7)]
        self.assertNotEqual(self.score().returncode, 0)

    def test_a_wait_of_a_day_is_refused_and_a_short_one_is_told(self):
        self.server.queue, self.server.headers = [(429, "quota")], {"Retry-After": "86400"}
        run = self.score()
        self.assertEqual(run.returncode, 2)
        self.assertIn("HTTP 429: quota; it asks to wait 86400 s", run.stderr)
        self.server.queue, self.server.headers = [(429, "slow down")], {"Retry-After": "1"}
        run = self.score()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("HTTP 429: slow down; try 2 of 5 in 1 s", run.stderr)

    def test_texts_without_marks_are_left_out_of_the_mean(self):
        self.rows.write_text("".join(json.dumps({"prompt": "Write.", "response": f"{i}"}) + "\n" for i in range(2)))
        wild = MARKS.replace('"Relevance": 5', '"Relevance": 500')
        self.server.queue = [(200, "good")] * 3 + [(200, "nan"), (200, wild)]
        run = self.score()
        self.assertEqual(run.returncode, 0, run.stderr)
        result = json.loads(run.stdout)
        self.assertAlmostEqual(result["table_value"], 75)
        self.assertEqual((result["samples"], result["unread"]), (1, 1))
        self.assertIn("1 of 2 texts hold no marks", run.stderr)
        self.rows.write_text(json.dumps({"prompt": "Write.", "response": "nothing to mark"}))
        self.server.queue = [(200, "good")] * 5
        run = self.score()
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn("no text with marks", run.stderr)

    def test_what_endpoints_and_users_slip_in_goes_no_further(self):
        run = self.score(key="sk\r\nX-Injected: yes")
        self.assertEqual((run.returncode, self.server.asked), (2, []))
        self.assertIn("KVARENA_JUDGE_KEY: found a line end", run.stderr)
        self.server.queue = [(401, "no \x1b[2J\x07\x9b entry")]
        run = self.score(user="me:hunter2@")
        self.assertEqual(run.returncode, 2)
        for word in ("hunter2", "\x1b", "\x07", "\x9b"):
            self.assertNotIn(word, run.stderr)
        run = subprocess.run([KVARENA, "score", "--metric", "judged_quality", "--judge-url", "", "--judge-model", "m",
                              str(self.rows)], capture_output=True, text=True, timeout=60)
        self.assertEqual((run.returncode, run.stdout), (2, ""))

    def test_the_key_is_written_nowhere(self):
        self.server.queue = [(401, f"bad {KEY}")]
        runs = [self.score(), self.score()]
        for run in runs:
            self.assertNotIn(KEY, run.stdout + run.stderr)
        for file in pathlib.Path(self.folder.name).rglob("*"):
            if file.is_file():
                self.assertNotIn(KEY, file.read_text())


class AnswersOfARun(WithEndpoint):
    """`kvarena judge` on the answers of two methods to three requests for a text."""

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(self.folder.name)
        tiny_model.write(self.home / "model", SOURCE)
        self.run_config({"name": "writing", "workloads": ["longwrite-ruler"]})

    def run_config(self, config):
        (self.home / "config.json").write_text(json.dumps({
            "methods": ["full", {"name": "snapkv", "keep": 0.5, "window": 4}],
            "engine": {"max_new_tokens": 4, "noise_floor": 1},
            "models": [{"name": "tiny", "path": str(self.home / "model"), "dtype": "f32", "template": "none"}]} | config))
        run = self.call("run", "config.json", "--quiet", "--database", "r.db")
        self.assertEqual(run.returncode, 0, run.stderr)

    def call(self, *words):
        environment = os.environ | {"KVARENA_HOME": self.folder.name, "KVARENA_DATA": "", "KVARENA_JUDGE_KEY": KEY,
                                    "OMP_NUM_THREADS": "1"}
        return subprocess.run([KVARENA, *words], cwd=self.home, env=environment, capture_output=True, text=True,
                              timeout=100)

    def judge(self, *more, model="judge-1"):
        url = f"http://127.0.0.1:{self.server.server_port}/v1"
        return self.call("judge", "r.db", "--judge-url", url, "--judge-model", model, "--quiet", *more)

    def query(self, sql):
        with sqlite3.connect(self.home / "r.db") as database:
            return database.execute(sql).fetchall()

    def values(self, metric):
        return [value for value, in self.query(f"SELECT value FROM v_values WHERE kind = 'quality' AND "
                                               f"metric = '{metric}' ORDER BY position, sample_index")]

    def report(self):
        return self.call("report", "--database", "r.db", "--format", "md").stdout.replace("\\", "")

    def test_without_a_judge_the_column_is_absent_and_the_report_says_so(self):
        self.assertEqual(len(self.values("length_score")), 6)
        self.assertEqual(self.values("judged_quality"), [])
        report = self.report()
        self.assertIn("A judge model has yet to mark 6 answers for judged_quality", report)
        self.assertIn("kvarena judge DATABASE --judge-url URL", report)
        self.assertNotIn("Judged quality", report)

    def test_marks_and_the_six_respects_stand_in_the_database(self):
        self.server.queue = [(200, "Rather good.")] * 5 + [(503, "busy")]
        done = self.judge()
        self.assertEqual(done.returncode, 0, done.stderr)
        # Two methods may give one answer, which is asked about once; the first is read in vain five times, the next twice.
        answers = set(self.query("SELECT sample_id, prediction FROM v_samples WHERE kind = 'quality'"))
        self.assertEqual(len(self.server.asked), 5 + 1 + len(answers) - 1)
        self.assertIn("r.db: 5 answers marked by judge-1", done.stdout)
        self.assertIn("1 answers have no marks", done.stderr)
        prompt = self.server.asked[0][2]["messages"][0]["content"]
        self.assertIn("<User Request>\n\nWrite a 500-word history of a bridge.", prompt)
        (answer,), = self.query("SELECT prediction FROM v_samples WHERE method = 'full' AND sample_index = 0 LIMIT 1")
        self.assertIn(f"<Response>\n\n{answer}\n\n</Response>", prompt)
        self.assertEqual(self.values("judged_quality"), [None] + [0.75] * 5)
        for respect, share in (("relevance", 1), ("accuracy", 1), ("coherence", 0.75), ("clarity", 0.75),
                               ("breadth_and_depth", 0.5), ("reading_experience", 0.5)):
            self.assertEqual(self.values("judged_" + respect), [None] + [share] * 5)
        report = self.report()
        self.assertNotIn("has yet to mark", report)
        self.assertIn("judge judge-1 (question ", report)
        before = len(self.server.asked)
        self.assertEqual(self.judge().returncode, 0)
        self.assertEqual(len(self.server.asked), before, "nothing is asked twice")
        self.assertNotIn(KEY.encode(), (self.home / "r.db").read_bytes())

    def test_an_endpoint_that_dies_costs_the_answer_in_work_alone(self):
        self.server.queue = [(200, MARKS), (200, MARKS), (400, "no more credit")]
        cut = self.judge()
        self.assertEqual(cut.returncode, 2)
        self.assertIn("HTTP 400: no more credit", cut.stderr)
        self.assertEqual(len(self.values("judged_quality")), 2)
        self.assertIn("yet to mark 4 answers", self.report())
        on = self.judge("--judge-cache", f"{self.folder.name}/another-cache")
        self.assertEqual(on.returncode, 0, on.stderr)
        self.assertEqual(len(self.server.asked), 3 + 4)
        self.assertEqual(self.values("judged_quality"), [0.75] * 6)

    def test_marks_of_two_judges_are_never_in_one_table(self):
        self.server.queue = [(200, MARKS), (400, "enough")]
        self.judge()
        other = self.judge(model="judge-2")
        self.assertEqual(other.returncode, 2)
        self.assertIn("of writing by the judge judge-1, question ", other.stderr)
        self.assertEqual(len(self.values("judged_quality")), 1)
        other = self.judge("--replace", model="judge-2")
        self.assertEqual(other.returncode, 0, other.stderr)
        self.assertEqual(len(self.values("judged_quality")), 6)
        self.assertIn("judge judge-2 (question ", self.report())

    def test_a_needle_is_asked_about_with_its_own_question_and_truth(self):
        self.run_config({"name": "needles", "metrics": ["judged_needle"],
                         "workloads": [{"name": "niah", "lengths": [400], "depths": [50], "buffer": 0}]})
        self.server.queue = [(200, "Rating: [[7]]")] * 2
        done = self.judge("--experiment", "needles")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.values("judged_needle"), [0.7, 0.7])
        system, user = self.server.asked[0][2]["messages"]
        self.assertEqual(system["content"], "You are a helpful assistant.")
        self.assertIn("[Question]\nWhat is the best thing to do in San Francisco?\n", user["content"])
        self.assertIn("sit in Dolores Park on a sunny day.\n", user["content"].split("[Ground truth]")[1])
        refused = self.judge("--experiment", "needle")
        self.assertIn('did you mean "needles"?', refused.stderr)


class Questions(WithEndpoint):
    """`kvarena questions` against the same server."""

    def questions(self, *more):
        url = f"http://127.0.0.1:{self.server.server_port}/v1"
        return subprocess.run(
            [KVARENA, "questions", "needle:words=[300],samples=2", "--url", url, "--writer", "writer-1", "--train", "1",
             "--test", "2", "--cache", f"{self.folder.name}/cache", *more],
            env={**os.environ, "KVARENA_JUDGE_KEY": KEY}, capture_output=True, text=True, timeout=60)

    def test_questions_are_asked_for_until_there_are_enough(self):
        self.server.queue = [(200, "1. Who?\n2. Why?"), (200, "1. Why?\n2. When?"), (200, "Who?\nWhat?\nWhere?\nHow?")]
        run = self.questions()
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = [json.loads(line) for line in run.stdout.splitlines()]
        self.assertEqual([row["question"] for row in rows], ["Who?", "Why?", "When?", "Who?", "What?", "Where?"])
        self.assertEqual([row["split"] for row in rows], ["test", "test", "train"] * 2)
        self.assertEqual(len({row["context_id"] for row in rows}), 2)
        prompt = self.server.asked[0][2]["messages"][0]["content"]
        self.assertIn("Read the text and remember the password.", prompt)
        self.assertNotIn("What is the password of", prompt)
        self.assertIn("Write 3 questions", prompt)
        self.assertNotIn(KEY, run.stdout + run.stderr)

    def test_a_writer_that_asks_nothing_is_named(self):
        self.server.queue = [(200, "I cannot.")] * 5
        run = self.questions()
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("0 different questions in 5 answers", run.stderr)


unittest.main(argv=sys.argv[:1])
