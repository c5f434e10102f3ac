"""`kvarena serve` under clients of every kind: patient, slow, gone, malformed, oversized. Every accepted request is
answered as it is alone, none of the others does harm, memory stays, and SIGTERM ends it with 0.

    python3 tests/end_to_end/serve_stress_test.py build/release/bin/kvarena SOURCE_FOLDER [REQUESTS]
"""

import collections
import concurrent.futures
import json
import pathlib
import random
import socket
import sys
import tempfile
import time
import unittest

import served

KVARENA, SOURCE = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
REQUESTS = int(sys.argv[3]) if len(sys.argv) > 3 else 400
CONCURRENT = 64
METHODS = ["streaming_llm:tokens=32", "snapkv:keep=0.25"]
WARM = max(REQUESTS // 10, 200)  # requests before memory is measured
MOST_GROWTH_MIB = 32


def raw(server, body, headers="", length=None):
    """A socket that has sent a request, or a part of it."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=120)
    length = len(body) if length is None else length
    connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n".encode() + body)
    return connection


def completion(draw, server, most=20):
    return {"model": draw.choice(server.models), "prompt": [draw.randrange(2, 290) for _ in range(draw.randrange(1, 200))],
            "max_tokens": draw.randrange(1, most), "temperature": draw.choice([0, 1]), "seed": draw.randrange(5)}


def text_of(events):
    assert events.rstrip().endswith(b"data: [DONE]"), events[-300:]
    chunks = [json.loads(line[6:]) for line in events.splitlines() if line.startswith(b"data: {")]
    return "".join(chunk["choices"][0]["text"] for chunk in chunks)


def patient(draw, server):
    body = completion(draw, server)
    status, answer = server.ask(body)
    assert status == 200, answer
    answer = json.loads(answer)
    assert answer["usage"]["prompt_tokens"] == len(body["prompt"]), answer
    if draw.random() < 0.3:
        status, events = server.ask(body | {"stream": True})
        assert status == 200 and text_of(events) == answer["choices"][0]["text"], (body, answer, events)


def slow(draw, server):
    body = completion(draw, server) | {"stream": True}
    connection = raw(server, json.dumps(body).encode(), "Connection: close\r\n")
    events = b""
    while piece := connection.recv(draw.randrange(1, 400)):
        events += piece
        time.sleep(draw.random() * 0.02)
    connection.close()
    assert b"data: [DONE]" in events, events[-300:]


def leaves(draw, server):
    body = completion(draw, server, most=900) | {"stream": draw.random() < 0.7, "ignore_eos": True}
    connection = raw(server, json.dumps(body).encode())
    if draw.random() < 0.7:
        connection.settimeout(draw.random() * 0.05 + 0.001)
        try:
            connection.recv(500)
        except TimeoutError:
            pass
    connection.close()


def half(draw, server):
    raw(server, b'{"model"', length=1000).close()


def malformed(draw, server):
    good = json.dumps(completion(draw, server)).encode()
    status, answer = server.ask(good[:draw.randrange(len(good))])
    assert status == 400 and json.loads(answer)["error"]["message"], answer


def oversized(draw, server):
    status, answer = server.ask(b" " * 1_200_000)
    assert status == 413, (status, answer)


def unknown(draw, server):
    status, answer = server.ask(completion(draw, server) | {"model": "nobody"})
    assert status == 404, (status, answer)


KINDS = {patient: 50, leaves: 20, slow: 8, half: 7, malformed: 8, unknown: 5, oversized: 2}


class Stress(unittest.TestCase):
    def test_every_accepted_request_is_answered_and_memory_stays(self):
        counts = collections.Counter()
        with tempfile.TemporaryDirectory() as folder:
            server = served.Server(KVARENA, SOURCE, folder, METHODS, "--max-body-mib", "1", "--cache-mib", "64")
            draw = random.Random(1)
            work = [(draw.choices(list(KINDS), list(KINDS.values()))[0], draw.random()) for _ in range(REQUESTS)]

            def run(item):
                kind, seed = item
                kind(random.Random(seed), server)
                counts[kind.__name__] += 1

            begin = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(CONCURRENT) as pool:
                list(pool.map(run, work[:WARM]))
                before = server.resident_mib()
                list(pool.map(run, work[WARM:]))
            seconds = time.monotonic() - begin
            for _ in range(600):
                metrics = server.metrics()
                if metrics["kvarena_requests_running"] + metrics["kvarena_requests_waiting"] == 0:
                    break
                time.sleep(0.1)
            after = server.resident_mib()
            self.assertEqual(0, metrics["kvarena_requests_running"])
            self.assertEqual(0, metrics["kvarena_requests_waiting"])
            self.assertEqual(0, metrics["kvarena_cache_reserved_bytes"])
            failed = {name: value for name, value in metrics.items() if "failed" in name or 'status="5' in name}
            self.assertEqual({}, failed)
            self.assertGreater(sum(value for name, value in metrics.items() if 'outcome="cancelled"' in name), 0)
            print(f"{REQUESTS} requests in {seconds:.0f} s, {dict(counts)}; resident {before:.0f} MiB after {WARM}, "
                  f"{after:.0f} MiB at the end", {name: value for name, value in metrics.items() if "outcome" in name})
            self.assertLess(after - before, MOST_GROWTH_MIB)
            self.assertEqual(REQUESTS, sum(counts.values()))
            self.assertEqual(0, server.stop())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
