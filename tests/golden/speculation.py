"""Rounds of drafting and verifying, for tests/methods/verification/*_test.cpp.

    pip install torch transformers
    python tests/golden/speculation.py

Writes speculation/NAME.json. ngram, early_exit and spec_decode are the transformers library's own: candidates of its
prompt lookup for token lists, and generate() with assistant_early_exit and with an assistant model, whose candidate
generators are watched. VeriCache and MagicDec have no public code that runs here (MagicDec's is CUDA); their rounds
are restated by hand in float64 over the library's weights: the compressed cache drafts, one pass over full KV verifies,
accepted tokens leave the verifier's entries in a compressed cache that is left alone while decoding; one that evicts
then keeps the entries that drafting computed, and what a round that was accepted whole has not fed is fed before the
next. Compressors: key norms (the shortest half of the keys stays, generated tokens stay) and sinks with a window, which
moves.

The models are those of tests/support/tiny_model.h; the smaller one has the same weights and two of the three layers.
All decoding is greedy. A case holds the settings, the prompt, and for each round how many tokens were drafted and how
many of them accepted. Written for torch 2.7, transformers 5.23; vericache and magicdec by torch 2.15, transformers 5.24.
"""

import copy

import torch
from by_method import write
from random_stream import draw
from tiny_model import Llama, tiny_model
from transformers.generation.candidate_generator import AssistedCandidateGenerator, PromptLookupCandidateGenerator

NEW_TOKENS = 48


def prompt(seed, n, repeats=True):
    """Tokens that repeat themselves here and there; where norms of keys rank entries, none twice: equal ones would tie."""
    if not repeats:
        return sorted(range(128), key=lambda i: draw(seed, "speculation golden", i))[:n]
    ids = [draw(seed, "speculation golden", i) % 128 for i in range(n)]
    for i in range(20, n):
        if i % 11 < 4:
            ids[i] = ids[i - 17]
    return ids


def watched(model, ids, **options):
    """(drafted, accepted) of each round of generate(), which is given the first token after the prompt."""
    rounds, drafted = [], []
    propose, judge = AssistedCandidateGenerator.get_candidates, AssistedCandidateGenerator.update_candidate_strategy

    def noted_propose(self, input_ids, *more, **given):
        found = propose(self, input_ids, *more, **given)
        drafted.append(found[0].shape[1] - input_ids.shape[1])
        return found

    def noted_judge(self, input_ids, scores, matches):
        rounds.append([drafted.pop(), int(matches)])
        return judge(self, input_ids, scores, matches)

    AssistedCandidateGenerator.get_candidates = noted_propose
    AssistedCandidateGenerator.update_candidate_strategy = noted_judge
    try:
        first = [model(torch.tensor([ids])).logits[0, -1].argmax().item()]
        out = model.generate(torch.tensor([ids + first]), do_sample=False, max_new_tokens=NEW_TOKENS - 1, pad_token_id=0,
                             **options)
    finally:
        AssistedCandidateGenerator.get_candidates = propose
        AssistedCandidateGenerator.update_candidate_strategy = judge
    return {"prompt": ids, "tokens": out[0, len(ids):].tolist(), "rounds": rounds}


def fixed_length(model, length):
    model.generation_config.eos_token_id = None
    model.generation_config.num_assistant_tokens = length
    model.generation_config.num_assistant_tokens_schedule = "constant"
    model.generation_config.assistant_confidence_threshold = 0.0


def early_exit():
    model = tiny_model()
    cases = []
    for seed, n, layers, length in [(1, 60, 1, 3), (3, 90, 2, 6)]:
        fixed_length(model, length)
        case = watched(model, prompt(seed, n), assistant_early_exit=layers)
        plain = model.generate(torch.tensor([case["prompt"]]), do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=0)
        assert plain[0, n:].tolist() == case["tokens"], "the library's early exit changed the answer, as it does for some"
        cases.append({"spec": {"name": "early_exit", "layers": layers / 3, "draft_length": length}, **case})
    return cases


def spec_decode():
    model, smaller, other = tiny_model(), tiny_model(layers=2), tiny_model(seed=2)
    cases = []
    for seed, n, assistant, length in [(4, 60, smaller, 4), (5, 90, smaller, 2), (6, 60, other, 5)]:
        fixed_length(model, length)
        fixed_length(assistant, length)
        cases.append({"spec": {"name": "spec_decode", "draft_length": length},
                      "drafter": "smaller" if assistant is smaller else "other",
                      **watched(model, prompt(seed, n), assistant_model=assistant)})
    return cases


def ngram():
    cases = []
    for seed in range(1, 40):
        n, values = 8 + seed % 30, 3 + seed % 9
        ids = [draw(seed, "lookup golden", i) % values for i in range(n)]
        for longest, limit in ((3, 10), (2, 3), (5, 4)):
            lookup = PromptLookupCandidateGenerator(num_output_tokens=limit, max_matching_ngram_size=longest,
                                                    max_length=10_000)
            found = lookup.get_candidates(torch.tensor([ids]))[0][0].tolist()
            cases.append({"spec": {"name": "ngram", "max_ngram": longest}, "history": ids, "limit": limit,
                          "proposed": found[n:]})
    return cases


class Compressed:
    """Which entries of every layer and head a compressor has left, [layers][kv_heads, room]."""

    def __init__(self, entries, n, room, rule, size):
        self.rule, self.size = rule, size
        self.left = [torch.zeros(2, room, dtype=torch.bool) for _ in entries]
        for (keys, _), left in zip(entries, self.left):
            if rule == "knorm":
                norms = keys[:, :n].norm(dim=-1)
                margin = norms.sort(-1).values
                assert (margin[:, size] - margin[:, size - 1]).min() > 1e-4, "a tie"
                left.scatter_(1, norms.topk(size, largest=False).indices, True)
            else:
                left[:, :n] = True
        self.settle(n)

    def settle(self, n):
        if self.rule == "window":
            for left in self.left:
                left[:, 4: max(4, n - (self.size - 4))] = False

    def add(self, position):
        for left in self.left:
            left[:, position] = True


def undoubted(logits):
    assert logits.topk(2).values.diff().abs().min() > 2e-4, "float32 may choose another token"


def restated(llama, ids, rule, size, length):
    """Rounds of a compressed cache that drafts and full KV that verifies."""
    n, room = len(ids), len(ids) + NEW_TOKENS + length + 1
    tokens = torch.zeros(room, dtype=torch.long)
    tokens[:n] = torch.tensor(ids)
    full = llama.empty(room)
    tokens[n] = llama.run(tokens, range(n), full)[0][-1].argmax()
    end, rounds = n + 1, []  # the newest token has no entries yet
    compressed, entries = Compressed(full, n, room, rule, size), copy.deepcopy(full)
    online, own = rule == "window", n  # entries of the compressed cache

    def step(drafts, position, left):
        left.add(position)
        logits = llama.run(drafts, [position], entries, visible=left.left)[0][-1]
        left.settle(position + 1)
        return logits

    while end - n < NEW_TOKENS:
        count = min(length, NEW_TOKENS - (end - n) - 1)
        if not online:
            entries = copy.deepcopy(full)
        for position in range(own, end - 1):
            step(tokens, position, compressed)
        view, drafts = copy.deepcopy(compressed), tokens.clone()
        for position in range(end - 1, end - 1 + count):
            logits = step(drafts, position, view)
            undoubted(logits)
            drafts[position + 1] = logits.argmax()
        rows = list(range(end - 1, end + count))
        verdict = llama.run(drafts, rows, full)[0]
        undoubted(verdict)
        verdict = verdict.argmax(-1)
        accepted = 0
        while accepted < count and verdict[accepted] == drafts[end + accepted]:
            accepted += 1
        tokens[end: end + accepted + 1] = verdict[: accepted + 1]
        own = end - 1 + (min(count, accepted + 1) if online else accepted + 1)
        for position in range(end - 1, own):
            compressed.add(position)
            compressed.settle(position + 1)
        end += accepted + 1
        rounds.append([count, accepted])
    return {"prompt": ids, "tokens": tokens[n:end].tolist(), "rounds": rounds}


def first_undoubted(llama, seed, n, rule, size, length):
    """Rounds of the first seed from `seed` on that does not hang on rounding."""
    while True:
        try:
            return restated(llama, prompt(seed, n, rule != "knorm"), rule, size, length)
        except AssertionError:
            seed += 100


def vericache():
    llama = Llama(tiny_model())
    shapes = [(7, 80, "knorm", 75, 4), (8, 60, "knorm", 52, 7), (9, 90, "window", 112, 5)]
    named = {"knorm": lambda size: {"name": "knorm", "tokens": size},
             "window": lambda size: {"name": "streaming_llm", "tokens": size}}
    return [{"spec": {"name": "vericache", "draft_length": length, "drafter": named[rule](size)},
             **first_undoubted(llama, *shape)} for shape in shapes for _, _, rule, size, length in [shape]]


def magicdec():
    llama = Llama(tiny_model())
    return [{"spec": {"name": "magicdec", "draft_length": length, "draft_tokens": size},
             **first_undoubted(llama, seed, n, "window", size, length)}
            for seed, n, size, length in [(10, 80, 96, 3), (11, 120, 134, 7)]]


if __name__ == "__main__":
    for part in (ngram, early_exit, spec_decode, vericache, magicdec):
        write(__file__, part.__name__, {"cases": part()})
