#!/usr/bin/env python3
"""How a study's cost grows with context, batch, methods, samples and workers, and what memory it takes.

    scripts/build release kvarena kvarena-backend-bench kvarena-report-bench
    python3 scripts/growth.py [--only TERM]... > reports/benchmarks/growth-smollm2-135m.md

Each term alone grows, from a small study of the default model; the rest stays. Times are processor seconds of one thread, of
workers the clock's: shards of one study that run beside each other. The exponent is that of the last step: log of the times'
ratio over log of the sizes'. Memory is the largest resident set of a study of one prompt, beside that of the model alone and
the caches as the results count them.
"""

import argparse
import json
import math
import os
import pathlib
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time

from runs import BUILD, ROOT, cpu

METHODS = ["knorm", "keydiff", "snapkv", "tova", "expected_attention", "streaming_llm", "lagkv", "pyramidkv", "adakv", "h2o"]


def bench(program, name, **variables):
    """Processor seconds of a benchmark."""
    text = subprocess.run([BUILD / "bin" / program, f"--benchmark_filter=^{name}", "--benchmark_format=json"], check=True,
                          capture_output=True, text=True, env=os.environ | variables).stdout
    return json.loads(text)["benchmarks"][0]["cpu_time"] / 1000


def long(name):
    """Processor seconds of a benchmark of Gemma 3 270M, whose window is 32k tokens."""
    return bench("kvarena-backend-bench", name, KVARENA_BENCH_MODEL="gemma-3-270m")


def settings(methods, names=METHODS):
    budgets = [round(0.1 + 0.8 * i / 8, 3) for i in range(math.ceil(methods / len(names)))]
    return [{"name": name, "keep": keep} for keep in budgets for name in names][:methods]


def study(words=300, methods=5, samples=1, entries=None, workers=1):
    """Processor seconds of `kvarena run`, the clock's, and bytes of the caches of all methods as it counts them."""
    entries = settings(methods) if entries is None else entries
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "growth.json"
        config.write_text(json.dumps({
            "name": "growth", "models": ["smollm2-135m"],
            "workloads": [{"name": "needle", "words": [words], "samples": samples, "limit": samples}],
            "methods": ["full", *entries], "engine": {"max_new_tokens": 16, "noise_floor": 0, "threads": 1}}))
        databases = [pathlib.Path(folder) / f"{worker}.db" for worker in range(workers)]
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        runs = [subprocess.Popen([BUILD / "bin" / "kvarena", "run", config, "--quiet", "--shard", f"{worker}/{workers}",
                                  "--database", database], stdout=subprocess.DEVNULL) for worker, database in enumerate(databases)]
        if any([run.wait() for run in runs]):
            sys.exit("[growth] a study failed")
        after, end = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        with sqlite3.connect(databases[0]) as results:
            (counted,) = results.execute("SELECT sum(value) FROM v_values WHERE metric = 'resident_bytes'").fetchone()
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, end - begin, counted


def seconds(**what):
    return study(**what)[0]


def alone(code):
    """Two numbers: what `code` computes in a process of its own, and the largest resident set of its children in MiB."""
    code = (f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import growth, resource, subprocess; value = {code}; "
            "print(value, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)")
    text = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return map(float, text.split()[-2:])


def memory():
    """Rows of the table of memory."""
    first_logits = [str(BUILD / "bin" / "kvarena"), "model", "logits", "--ids", "1"]
    _, model = alone(f"subprocess.run({first_logits!r}, stdout=subprocess.DEVNULL).returncode")
    for title, entries in (("full KV alone", []), ("10 methods that drop", settings(10)), ("30 methods that drop", settings(30)),
                           ("8 that retrieve", settings(8, ["quest"]))):
        caches, whole = alone(f"growth.study(words=1500, entries={entries!r})[2] / 2**20")
        yield title, model, caches, whole, whole / (model + caches)


def started():
    """Seconds of a study's start: its plan, the model, one short prompt under one method."""
    return seconds(words=10, methods=1)


# term, what is measured, unit of x, sizes, seconds of a size, whether a study's start is taken off
TERMS = [
    ("context", "prefill, bf16", "tokens", [512, 2048, 8192],
     lambda x: bench("kvarena-backend-bench", f"prefill_bench/bf16/tokens:{x}/"), False),
    ("context", "a decoding step, bf16", "tokens", [2048, 4096, 8192],
     lambda x: bench("kvarena-backend-bench", f"decode_bench/bf16/depth:{x}/sequences:1/"), False),
    ("context", "prefill of Gemma 3 270M", "tokens", [2048, 8192, 32768], lambda x: long(f"prefill_bench/bf16/tokens:{x}/"), False),
    ("context", "its decoding step", "tokens", [2048, 8192, 32512],
     lambda x: long(f"decode_bench/bf16/depth:{x}/sequences:1/"), False),
    ("context", "a study of 5 methods", "words", [300, 1200, 4800], lambda x: seconds(words=x), True),
    ("batch", "a decoding step behind 2k tokens each", "sequences", [1, 4, 16, 64],
     lambda x: bench("kvarena-backend-bench", f"decode_bench/bf16/depth:2048/sequences:{x}/"), False),
    ("methods", "a study of one prompt", "methods", [5, 20, 80], lambda x: seconds(methods=x), True),
    ("methods", "its report, 500 samples each", "methods", [5, 20, 80],
     lambda x: bench("kvarena-report-bench", f"report/methods:{x}/workloads:5/samples:100/"), False),
    ("samples", "a study of 5 methods", "samples", [2, 8, 32], lambda x: seconds(samples=x), True),
    ("samples", "a report of 20 methods", "rows", [1000, 10_000, 100_000],
     lambda x: bench("kvarena-report-bench", f"report/methods:20/workloads:5/samples:{x // 100}/"), False),
    ("samples", "comparing two such runs", "rows", [1000, 10_000, 100_000],
     lambda x: bench("kvarena-report-bench", f"compare/methods:20/workloads:5/samples:{x // 100}/"), False),
    ("workers", "a study of 16 samples, by the clock", "workers", [1, 2], lambda x: study(samples=16, workers=x)[1], False),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="terms")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    print(f"# Growth\n\n{cpu()}, one thread. `scripts/growth.py` says what is measured. A study's start "
          "is taken off its times.\n\n| term | what | sizes | seconds | exponent |\n| --- | --- | --- | --- | ---: |")
    start = started()
    for term, what, unit, sizes, measure, in_study in TERMS:
        if options.only and term not in options.only:
            continue
        times = [measure(size) - (start if in_study else 0) for size in sizes]
        exponent = math.log(times[-1] / times[-2]) / math.log(sizes[-1] / sizes[-2])
        print(f"| {term} | {what} | {', '.join(f'{size:,}' for size in sizes)} {unit} | {', '.join(f'{t:.3g}' for t in times)} | "
              f"{exponent:.2f} |", flush=True)
        print(f"[growth] {term}: {what}", file=sys.stderr)
    if options.only and "memory" not in options.only:
        return
    print("\n| a study of one prompt of 1.9k tokens | the model alone, MiB | caches as counted | resident at most | of both |\n"
          "| --- | ---: | ---: | ---: | ---: |")
    for title, model, caches, whole, share in memory():
        print(f"| {title} | {model:.0f} | {caches:.0f} | {whole:.0f} | {share:.2f} |", flush=True)


if __name__ == "__main__":
    main()
