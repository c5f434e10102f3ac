#!/usr/bin/env python3
"""KL of bf16 arithmetic from exact arithmetic, here and in transformers, on the same prompts and the same bf16 weights.

    pip install torch transformers==5.2.0 gguf numpy
    python3 scripts/arithmetic_kl.py MODEL.gguf > reports/benchmarks/bf16_arithmetic-smollm2-135m.md

Prompts are the beginnings of pages of this project's documentation. At each of a prompt's last positions KL is taken from
the exact distribution to the rounded one, in float64 over the whole vocabulary. Caches are bf16 on both sides; of exact
arithmetic in transformers everything is float32 but the weights, which are rounded to bf16 first.
"""

import copy
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from runs import BUILD, ROOT

PROMPTS, TOKENS, POSITIONS = 20, 600, 64


def pages():
    """The first pages, by name, that are long enough."""
    texts = sorted(ROOT.glob("docs/**/*.md"))
    return [path for path in texts if path.stat().st_size > 5 * TOKENS][:PROMPTS]


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def kl(exact, rounded):
    """Nats at each position."""
    p, q = log_softmax(exact), log_softmax(rounded)
    return (np.exp(p) * (p - q)).sum(axis=-1)


def ours(model, ids, *options):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "logits.npy"
        subprocess.run([BUILD / "bin" / "kvarena", "model", "logits", "--model", model, "--ids", ",".join(map(str, ids)), "--dtype",
                        "bf16", *options, "--all", "--output", file], check=True, stdout=subprocess.DEVNULL)
        return np.load(file)[-POSITIONS:]


def theirs(model, ids):
    import torch
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0, -POSITIONS:].float().numpy()


def main():
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, __version__
    path = pathlib.Path(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    exact = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    rounded = copy.deepcopy(exact).to(torch.bfloat16)
    exact.load_state_dict(rounded.state_dict())
    rows = []
    for page in pages():
        ids = tokenizer(page.read_text())["input_ids"][:TOKENS]
        own, full = ours(path, ids), theirs(exact, ids)
        rows.append([kl(own, ours(path, ids, "--arithmetic", "bf16")), kl(full, theirs(rounded, ids)), kl(full, own)])
        print(page.name, [f"{each.mean():.2e}" for each in rows[-1]], file=sys.stderr)
    print("# What bf16 arithmetic changes\n")
    print(f"{path.stem}, {len(rows)} prompts of {TOKENS} tokens, the last {POSITIONS} positions of each; transformers {__version__}, torch "
          f"{torch.__version__.split('+')[0]}. By `scripts/arithmetic_kl.py`. KL a position, nats.\n")
    print("| from | to | mean | median of prompts | largest of prompts | largest position |\n| --- | --- | ---: | ---: | ---: | ---: |")
    names = [("kvarena, exact", "kvarena, `\"arithmetic\": \"bf16\"`"), ("transformers, float32", "transformers, bfloat16"),
             ("transformers, float32", "kvarena, exact, entries in bf16")]
    for i, (source, target) in enumerate(names):
        means = np.array([row[i].mean() for row in rows])
        print(f"| {source} | {target} | {means.mean():.2e} | {np.median(means):.2e} | {means.max():.2e} | {max(row[i].max() for row in rows):.2e} |")


main()
