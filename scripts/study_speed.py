#!/usr/bin/env python3
"""Processor seconds of a study: kvarena beside kvpress in transformers, equal prompts, answers of equal lengths, one thread
each.

    pip install torch transformers==5.2.0 kvpress==0.5.5 gguf
    python3 scripts/study_speed.py --prompts 2 > reports/benchmarks/study_speed-smollm2-135m.md

The study is full KV and ten methods under three budgets on 30 prompts of 2k tokens; --prompts of them are measured, the
rest is extrapolated. Ours is one `kvarena run` over all of these, from its start to its end: it also loads the model,
repeats answers along full KV's for KL, counts bytes and stores all of it. Theirs is a loop that reads the context under
the press, then the question, and decodes as many tokens as our answer has; loading the model is not counted.
PyramidKVPress is not among them: transformers masks a question of several tokens for all layers as for the first, whose
cache is longer.
"""

import argparse
import json
import os
import pathlib
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

from runs import BUILD, HOME, ROOT, cpu

sys.path.insert(0, str(ROOT / "python"))

STUDY, TOKENS, ANSWER, BUDGETS = 30, 2000, 32, (0.25, 0.5, 0.75)
PAIRS = [("knorm", {}, "KnormPress"), ("keydiff", {}, "KeyDiffPress"), ("snapkv", {}, "SnapKVPress"),
         ("tova", {"keep_newest": True}, "TOVAPress"), ("expected_attention", {}, "ExpectedAttentionPress"),
         ("streaming_llm", {}, "StreamingLLMPress"), ("lagkv", {"lag": 64}, "LagKVPress"),
         ("random", {}, "RandomPress"), ("adakv", {}, "AdaKVPress(SnapKVPress"), ("curdkv", {}, "CURPress")]
ARITHMETIC = {"f32": "exact", "bf16": "bf16"}  # as torch has it: in bf16 activations are rounded at products, too
QUESTION = "\nWhat is described above? In short:"


def settings():
    """(label, method's entry of a config, press as text or None) of every setting of the study."""
    yield "full", {"name": "full", "label": "full"}, None
    for name, own, press in PAIRS:
        for keep in BUDGETS:
            label = f"{name} {keep}"
            inside = press.count("(")
            ratio = f"compression_ratio={round(1 - keep, 2)}"
            yield label, {"name": name, "keep": keep, "label": label, **own}, f"{press}({ratio}" + ")" * (inside + 1)


def contexts(tokenizer, count):
    """Parts of this project's pages, each of TOKENS tokens."""
    ids = tokenizer("\n".join(page.read_text() for page in sorted(ROOT.glob("docs/**/*.md")))).input_ids
    return [tokenizer.decode(ids[i * TOKENS:(i + 1) * TOKENS]) for i in range(count)]


def ours(folder, prompts, options):
    """Processor seconds of a prompt in a run over all of them."""
    config = folder / "study.json"
    config.write_text(json.dumps({
        "name": "study_speed", "models": [{"name": "smollm2-135m", "dtype": options.dtype, "arithmetic": ARITHMETIC[options.dtype]}],
        "workloads": [{"name": "prompts", "file": str(folder / "prompts.jsonl"), "metric": "rouge_l", "question": "unseen",
                       "chat": False}],
        "methods": [entry for _, entry, _ in settings()],
        "engine": {"max_new_tokens": ANSWER, "threads": options.threads, "noise_floor": 0}}))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([BUILD / "bin" / "kvarena", "run", config, "--quiet", "--limit", str(prompts), "--database",
                    folder / "study.db"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / prompts


def answer_lengths(folder, sample):
    with sqlite3.connect(folder / "study.db") as database:
        return dict(database.execute("SELECT method, output_tokens FROM v_samples WHERE sample_index = ? AND kind = 'quality'",
                                     (sample,)))


def answer(model, press, context, question, tokens):
    """Reads the context under the press, then the question, and decodes greedily."""
    import contextlib
    import torch
    from transformers import DynamicCache
    with torch.no_grad():
        cache = DynamicCache()
        with press(model) if press is not None else contextlib.nullcontext():
            model.model(torch.tensor([context]), past_key_values=cache)
        fed, answered = question, []
        place = len(context)
        while len(answered) < tokens:
            position = torch.arange(place, place + len(fed))[None]
            logits = model(torch.tensor([fed]), past_key_values=cache, position_ids=position, logits_to_keep=1).logits
            place += len(fed)
            fed = [int(logits[0, -1].argmax())]
            answered += fed
        return answered


def theirs(model, tokenizer, context, lengths):
    """Processor seconds of each setting."""
    from kvarena import hf
    tokens = tokenizer(context).input_ids
    question = tokenizer(QUESTION, add_special_tokens=False).input_ids
    seconds = {}
    for label, _, press in settings():
        built = None if press is None else hf.build(press)
        begin = time.process_time()
        answer(model, built, tokens, question, lengths[label])
        seconds[label] = time.process_time() - begin
    return seconds


def main():
    import kvpress  # noqa: F401
    import torch
    import transformers
    from kvarena import hf
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=2, help=f"of {STUDY} that are measured")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"], help="weights and caches of both")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    file = next(pathlib.Path(HOME, "models", "smollm2-135m").glob("*.gguf"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = hf.load(str(file), options.dtype, "sdpa")
    hf.body(model)
    texts = contexts(tokenizer, options.prompts)
    presses, fed = [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = [{"id": f"{i}", "context": text, "prompt": QUESTION, "references": [text[:200]]}
                for i, text in enumerate(texts)]
        (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        own = ours(folder, len(texts), options)
        for i, text in enumerate(texts):
            lengths = answer_lengths(folder, i)
            fed += sum(lengths.values())
            presses.append(theirs(model, tokenizer, text, lengths))
            print(f"[study_speed] prompt {i + 1}: ours {own:.1f} s, kvpress {sum(presses[-1].values()):.1f} s", file=sys.stderr)
    report(options, own, presses, fed / len(texts), len(tokenizer(QUESTION, add_special_tokens=False).input_ids))


def report(options, own, presses, answered, question):
    """`own` seconds a prompt; `answered` tokens a prompt, under all settings together; `question` tokens a setting."""
    import importlib.metadata
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("kvpress", "transformers", "torch"))
    seconds = [sum(by_setting.values()) for by_setting in presses]
    peer, ratios = statistics.mean(seconds), [prompt / own for prompt in seconds]
    count = len(presses[0])
    asked = count * question + answered
    most, repeated = (count * TOKENS + asked) / (TOKENS + asked), (count * TOKENS + asked) / (TOKENS + asked + answered)
    print(f"""# The study as the unit: kvarena beside kvpress

{cpu()}, {options.threads} thread(s), weights and caches in {options.dtype}; {versions}. Full KV and {len(PAIRS)} methods under
{len(BUDGETS)} budgets, prompts of {TOKENS} tokens, answers of at most {ANSWER}; processor seconds, means of {len(presses)} measured prompts.
The study of {STUDY} prompts is extrapolated from these. `scripts/study_speed.py` says what is counted on either side.

| | a prompt, s | a setting of it, s | the study of {STUDY} prompts, s |
| --- | ---: | ---: | ---: |
| kvarena | {own:.1f} | {own / count:.2f} | {STUDY * own:.0f} |
| kvpress | {peer:.1f} | {peer / count:.2f} | {STUDY * peer:.0f} |

kvpress takes {peer / own:.1f} times as long ({min(ratios):.1f} to {max(ratios):.1f} by prompt). It feeds a model {most:.1f} times as many tokens as
a prompt read once needs, {repeated:.1f} times where answers are repeated for KL: more than that takes faster arithmetic.""")


main()
