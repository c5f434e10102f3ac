#!/usr/bin/env python3
"""llama.cpp's server out of the Python package xllamacpp, with the options of `llama-server` that a comparison needs.

    pip install xllamacpp
    python3 scripts/llama_server.py --model M.gguf --port 8080 --cache-type-k q8_0 --cache-type-v q8_0

It ends on SIGTERM. With port 0 it takes a free one. Its first line says its address.
"""

import argparse
import signal

import xllamacpp


def parameters():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", required=True, help="a .gguf file")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--ctx-size", type=int, default=4096, help="tokens of all slots together")
    parser.add_argument("--parallel", type=int, default=2, help="slots")
    parser.add_argument("--threads", type=int, default=2)
    for name in ("--cache-type-k", "--cache-type-v"):
        parser.add_argument(name, default="f16", choices=("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"))
    return parser.parse_args()


def main():
    given = parameters()
    settings = xllamacpp.CommonParams()
    settings.model.path, settings.hostnames, settings.port = given.model, ["127.0.0.1"], given.port
    settings.n_ctx, settings.n_parallel, settings.endpoint_metrics = given.ctx_size, given.parallel, True
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = given.threads
    settings.cache_type_k = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{given.cache_type_k.upper()}")
    settings.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{given.cache_type_v.upper()}")
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # before the server's threads, which inherit it
    server = xllamacpp.Server(settings)
    print("listening", server.listening_address, flush=True)
    signal.sigwait(signals)


if __name__ == "__main__":
    main()
