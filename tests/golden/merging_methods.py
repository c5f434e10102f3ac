"""CaM, D2O and MiniCache from the prompt's tokens on, restated in float64, for tests/methods/compression/*_test.cpp.

    pip install torch transformers kvpress
    python tests/golden/merging_methods.py
    python tests/golden/merging_methods.py MODEL.gguf > tests/golden/merging_smollm2.json

The model is the random one of tests/support/tiny_model.h (merging_methods/NAME.json) or a checkpoint, run here by hand
in float64 over the library's weights, with each head's entries in lists of its own. CaM (zyxxmu/cam, cam_hf): when an
entry leaves, a Bernoulli draw of a / mean(a of those behind) decides whether its value is shared among its M
successors; draws are harness/core/random.h's. D2O (AIoT-MLSys-Lab/ D2O): budgets by layer from the evenness of
attention, heavy hitters, evicted entries averaged into their nearest kept ones above a threshold that follows the mean
similarity. MiniCache: pairs of layers share directions by spherical interpolation, the prompt's most different entries
retained. A case holds each layer's and head's positions after the forced tokens (bits of a hexadecimal number; of a
checkpoint a digest of each layer's) and some logits of some forced tokens. Written for torch 2.11, transformers 5.23.
"""

import json
import math
import pathlib
import sys

import torch
from dropping_methods import KEEP, STEPS, TEXTS, best, digests
from by_method import write_prompts
from random_stream import uniform
from tiny_model import tiny_model
from streaming_positions import SHOWN, norm, shown, turned
from transformers import AutoModelForCausalLM, AutoTokenizer


class Run:
    """Keys and values [n, head_dim] and positions of every layer and kv head; `method` is called after attention."""

    def __init__(self, model):
        self.model = model
        self.layers = len(model.model.layers)
        self.kv_heads = model.config.num_key_value_heads
        self.group = model.config.num_attention_heads // self.kv_heads
        self.dim = model.config.head_dim
        self.theta = model.config.rope_parameters["rope_theta"]
        empty = lambda: [[torch.zeros(0, self.dim, dtype=torch.float64) for _ in range(self.kv_heads)]
                         for _ in range(self.layers)]
        self.keys, self.values = empty(), empty()
        self.positions = [[[] for _ in range(self.kv_heads)] for _ in range(self.layers)]
        self.length = 0

    def copy(self):
        other = Run(self.model)
        other.keys = [[head.clone() for head in layer] for layer in self.keys]
        other.values = [[head.clone() for head in layer] for layer in self.values]
        other.positions = [[list(head) for head in layer] for layer in self.positions]
        other.length = self.length
        return other

    def feed(self, tokens, method=None):
        """Logits after the last token; attention [layers][kv_heads] of [group, tokens, n]."""
        x = self.model.model.embed_tokens.weight[torch.tensor(tokens)]
        own = torch.arange(self.length, self.length + len(tokens))
        attention = []
        for i, layer in enumerate(self.model.model.layers):
            hidden = norm(x, layer.input_layernorm.weight)
            project = lambda m: m(hidden).view(len(tokens), -1, self.dim).transpose(0, 1)
            keys, values = turned(project(layer.self_attn.k_proj), own, self.theta), project(layer.self_attn.v_proj)
            queries = turned(project(layer.self_attn.q_proj), own, self.theta)
            out, rows = [], []
            for head in range(self.kv_heads):
                self.keys[i][head] = torch.cat([self.keys[i][head], keys[head]])
                self.values[i][head] = torch.cat([self.values[i][head], values[head]])
                self.positions[i][head] += own.tolist()
                q = queries[head * self.group:(head + 1) * self.group]
                scores = q @ self.keys[i][head].T / math.sqrt(self.dim)
                at = torch.tensor(self.positions[i][head])
                rows.append(scores.masked_fill(at[None, :] > own[:, None], -math.inf).softmax(-1))
                out.append(rows[-1] @ self.values[i][head])
            attention.append(rows)
            x = x + layer.self_attn.o_proj(torch.cat(out).permute(1, 0, 2).reshape(len(tokens), -1))
            x = x + layer.mlp(norm(x, layer.post_attention_layernorm.weight))
            if method is not None:
                method(self, i, rows)
        self.length += len(tokens)
        return norm(x[-1], self.model.model.norm.weight) @ self.model.model.embed_tokens.weight.T, attention

    def keep(self, layer, head, entries):
        self.keys[layer][head] = self.keys[layer][head][entries]
        self.values[layer][head] = self.values[layer][head][entries]
        self.positions[layer][head] = [self.positions[layer][head][e] for e in entries]


class Cam:
    def __init__(self, room, merge, seed=1):
        self.room, self.recent, self.merge = room, room // 2, merge
        self.seed, self.draws = seed, {}

    def evict(self, run, layer, head):
        n = len(run.positions[layer][head])
        if n > self.room:
            run.keep(layer, head, list(range(self.room - self.recent)) + list(range(n - self.recent, n)))

    def start(self, run, attention):
        for layer in range(run.layers):
            for head in range(run.kv_heads):
                self.draws[layer, head] = uniform(self.seed, f"merge layer {layer} head {head}", 512)
                self.evict(run, layer, head)

    def __call__(self, run, layer, rows):
        for head in range(run.kv_heads):
            a, values = rows[head][:, 0].mean(0), run.values[layer][head]
            n, first = len(a), self.room - self.recent
            for j in range(first, first + n - self.room):
                chance = min(1.0, (a[j] / a[j + 1:].mean()).item())
                if self.draws[layer, head][run.positions[layer][head][j]] < chance:
                    values[j + 1:j + 1 + self.merge] += values[j] / self.merge
            self.evict(run, layer, head)


class D2o:
    def __init__(self, n, keep, alpha=0.5, beta=0.5):
        self.n, self.share, self.alpha, self.beta = n, keep, alpha, beta

    def start(self, run, attention):
        evenness = []
        for rows in attention:
            variance = torch.stack([head.sum(1).var(-1, unbiased=False) for head in rows]).flatten()
            span = variance.max() - variance.min()
            evenness.append(((variance - variance.min()) / span).mean().item())
        weights = [math.exp(-e) for e in evenness]
        self.rooms = [int(min(1.0, max(0.01, w / sum(weights) * run.layers * self.share)) * self.n + 1e-9)
                      for w in weights]
        quarter = run.layers // 4
        for layer in (*range(min(2, quarter)), *range(run.layers - min(1, quarter), run.layers)):
            self.rooms[layer] = 10**9  # the authors leave the first two layers and the last one as they are
        self.sums = [[head.sum((0, 1)) for head in rows] for rows in attention]
        self.threshold = [0.0] * run.layers
        for layer in range(run.layers):
            self.evict(run, layer, first=True)

    def __call__(self, run, layer, rows):
        for head in range(run.kv_heads):
            old = torch.cat([self.sums[layer][head], torch.zeros(1, dtype=torch.float64)])
            self.sums[layer][head] = old + rows[head].sum((0, 1))
        self.evict(run, layer, first=False)

    def evict(self, run, layer, first):
        room = self.rooms[layer]
        n = len(run.positions[layer][0])
        if n <= room:
            return
        kept, gone, nearest, similar = [], [], [], []
        for head in range(run.kv_heads):
            kept.append(best(self.sums[layer][head], room, sinks=4, recent=room // 2))
            gone.append([i for i in range(n) if i not in kept[-1]])
            units = run.keys[layer][head] / run.keys[layer][head].norm(dim=1, keepdim=True)
            largest, index = (units[gone[-1]] @ units[kept[-1]].T).max(1)
            similar.append(largest)
            nearest.append(index)
        mean = torch.stack(similar).mean(0)
        old = self.threshold[layer]
        start = first or old <= 0
        self.threshold[layer] = mean.mean().item() if start else self.alpha * old + self.beta * mean.mean().item()
        for head in range(run.kv_heads):
            for rows in (run.keys[layer][head], run.values[layer][head]):
                before = rows.clone()
                for place, entry in enumerate(kept[head]):
                    joins = [e for e in range(len(gone[head]))
                             if nearest[head][e] == place and mean[e] >= self.threshold[layer]]
                    if joins:
                        added = sum(similar[head][e] * before[gone[head][e]] for e in joins)
                        rows[entry] = (before[entry] + added) / (1 + len(joins))
            self.sums[layer][head] = self.sums[layer][head][kept[head]]
            run.keep(layer, head, kept[head])


class MiniCache:
    """Pairs of layers from `start_layer` on, the lower one first."""

    def __init__(self, start_layer, t=0.6, retained=0.05):
        self.first, self.t, self.retained, self.limit = start_layer, t, retained, {}

    def merge(self, run, lower, begin, first):
        for head in range(run.kv_heads):
            for side, store in (("keys", run.keys), ("values", run.values)):
                low, high = store[lower][head][begin:], store[lower + 1][head][begin:]
                cosine = torch.nn.functional.cosine_similarity(low, high, dim=-1).clamp(-1, 1)
                angle = cosine.acos()
                u, v = low / low.norm(dim=-1, keepdim=True), high / high.norm(dim=-1, keepdim=True)
                shared = (((1 - self.t) * angle).sin()[:, None] * u + (self.t * angle).sin()[:, None] * v)
                shared = shared / shared.norm(dim=-1, keepdim=True)
                if first:
                    self.limit[lower, head, side] = angle.sort(descending=True).values[math.ceil(self.retained * len(angle)) - 1]
                merged = (angle < self.limit[lower, head, side])[:, None]
                new_low = torch.where(merged, shared * low.norm(dim=-1, keepdim=True), low)
                new_high = torch.where(merged, shared * high.norm(dim=-1, keepdim=True), high)
                store[lower][head] = torch.cat([store[lower][head][:begin], new_low])
                store[lower + 1][head] = torch.cat([store[lower + 1][head][:begin], new_high])

    def start(self, run, attention):
        for lower in range(self.first, run.layers - 1, 2):
            self.merge(run, lower, 0, True)

    def __call__(self, run, layer, rows):
        if layer > self.first and (layer - self.first) % 2 == 1:
            self.merge(run, layer - 1, len(run.positions[layer][0]) - 1, False)


def cases(n, start_layer):
    for keep in KEEP:
        yield {"name": "cam", "merge": 8, "keep": keep}, Cam(int(n * keep), 8)
        yield {"name": "d2o", "keep": keep}, D2o(n, keep)
    for retained in (0.02, 0.05, 0.2):
        spec = {"name": "minicache", "start_layer": start_layer, "retained": retained}
        yield spec, MiniCache(start_layer, retained=retained)


def run(model, tokens, forced, start_layer, positions, logits_of):
    """All cases of one prompt."""
    prompt = Run(model)
    _, attention = prompt.feed(tokens)
    done = []
    for spec, method in cases(len(tokens), start_layer):
        state, steps = prompt.copy(), {}
        method.start(state, attention)
        for step, token in enumerate(forced):
            logits, _ = state.feed([token], method)
            if step in SHOWN:
                steps[step] = logits_of(logits)
        done.append({"spec": spec, "positions": positions(state.positions), "steps": steps})
    return {"tokens": tokens, "forced": forced, "cases": done}


def tiny():
    model, prompts = tiny_model().double(), []
    masks = lambda kept: [[f"{sum(1 << p for p in head):x}" for head in layer] for layer in kept]
    for seed in range(5):
        torch.manual_seed(100 + seed)
        ids = torch.randperm(128).tolist()
        prompts.append(run(model, ids[:100], ids[100:100 + STEPS], 1, masks, shown))
    return prompts


def checkpoint(path):
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float64).eval()
    prompts = []
    texts = [tokenizer(text, add_special_tokens=False).input_ids for text in TEXTS]
    some = lambda logits: [round(x, 4) for x in logits[::4096].tolist()]
    for first in range(len(texts)):
        # Each token once: keys of equal tokens in the first layer are equally near to those between them, and rounding
        # would choose which D2O merges.
        ids = list(dict.fromkeys(sum(texts[first:] + texts[:first], [])))
        prompts.append(run(model, ids[:112], ids[112:128], len(model.model.layers) // 2, digests, some))
    return prompts


if __name__ == "__main__":
    with torch.no_grad():
        if len(sys.argv) > 1:
            print(json.dumps({"prompts": checkpoint(pathlib.Path(sys.argv[1]))}, separators=(",", ":")))
        else:
            write_prompts(__file__, tiny())
