"""Decode and prefill attention of PyTorch (scaled_dot_product_attention) on shapes of kvarena-cuda-bench, as JSON rows.

gpu_peer.py [--device cuda|cpu] [--samples N] [--shrink N] [--out FILE]

The same layers as the benchmark's, under the same names; --shrink divides context lengths, to see that it runs.
"""

import argparse
import json
import statistics
import sys
import time

Q_HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128  # Llama-3.1-8B
COLD_BYTES = 256 << 20  # more than a device's caches hold

# name, sequences, context, queries a sequence
SHAPES = [
    ("decode bf16 batch 1 8k", 1, 8192, 1),
    ("decode bf16 batch 1 32k", 1, 32768, 1),
    ("decode bf16 batch 1 128k", 1, 131072, 1),
    ("decode bf16 batch 8 16k", 8, 16384, 1),
    ("decode bf16 batch 8 32k", 8, 32768, 1),
    ("prefill bf16 2k", 1, 2048, 2048),
    ("prefill bf16 8k", 1, 8192, 8192),
]


def seconds_of(torch, device, work):
    if device == "cpu":
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


def measure(torch, options, sequences, context, queries):
    """Bytes of keys and values, and seconds of one call, several times."""

    def random(heads, length):
        return torch.randn(sequences, heads, length, HEAD_DIM, device=options.device, dtype=torch.bfloat16)

    size = 4 * sequences * KV_HEADS * context * HEAD_DIM
    copies = 1 if options.shrink > 1 else max(1, COLD_BYTES // size)
    layers = [(random(Q_HEADS, queries), random(KV_HEADS, context), random(KV_HEADS, context)) for _ in range(copies)]

    def work():
        for q, k, v in layers:
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=queries > 1, enable_gqa=True)

    work()
    once = seconds_of(torch, options.device, work)
    turns = 1 if options.shrink > 1 else min(200, max(1, int(0.03 / once)))

    def repeated():
        for _ in range(turns):
            work()

    samples = [seconds_of(torch, options.device, repeated) / (turns * copies) for _ in range(options.samples)]
    return size, samples


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--out")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("[gpu_peer] this Python has no torch")
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("[gpu_peer] torch finds no CUDA device")
    rows = []
    for name, sequences, context, queries in SHAPES:
        context = max(64, context // options.shrink)
        size, samples = measure(torch, options, sequences, context, min(queries, context))
        rows.append({"name": name, "bytes": size, "seconds": samples})
        print(f"torch: {name:<37} {statistics.median(samples) * 1e6:10.1f} us {size / statistics.median(samples) / 1e9:8.0f} GB/s",
              flush=True)
    if options.out:
        with open(options.out, "w") as file:
            json.dump({"program": f"torch {torch.__version__} scaled_dot_product_attention", "rows": rows}, file)


main()
