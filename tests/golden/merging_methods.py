"""CaM, D2O and MiniCache from the prompt's tokens on, restated in float64, for tests/methods/compression/merging_test.cpp.

    pip install torch
    python tests/golden/merging_methods.py > tests/golden/merging_methods.json

The model is the random one of tests/support/tiny_model.h, run here by hand in float64 over the library's weights, with each
head's entries in lists of its own. CaM (zyxxmu/cam, cam_hf): when an entry leaves, a Bernoulli draw of a / mean(a of those
behind) decides whether its value is shared among its M successors; draws are harness/core/random.h's. D2O (AIoT-MLSys-Lab/
D2O): budgets by layer from the evenness of attention, heavy hitters, evicted entries averaged into their nearest kept ones
above a threshold that follows the mean similarity. MiniCache: pairs of layers share directions by spherical interpolation,
the prompt's most different entries retained. A case holds each layer's and head's positions after the forced tokens (bits of
a hexadecimal number) and every eighth logit of some forced tokens. Written for torch 2.11.
"""

import json
import math
import sys

import torch
from dropping_methods import KEEP, STEPS, best, tiny_model
from random_stream import uniform
from streaming_positions import SHOWN, norm, shown, turned

KV_HEADS, GROUP, DIM = 2, 2, 32


class Run:
    """Keys and values [n, head_dim] and positions of every layer and kv head; `method` is called after attention."""

    def __init__(self, model):
        self.model = model
        self.layers = len(model.model.layers)
        empty = lambda: [[torch.zeros(0, DIM, dtype=torch.float64) for _ in range(KV_HEADS)] for _ in range(self.layers)]
        self.keys, self.values = empty(), empty()
        self.positions = [[[] for _ in range(KV_HEADS)] for _ in range(self.layers)]
        self.length = 0

    def feed(self, tokens, method=None):
        """Logits after the last token; attention [layers][kv_heads] of [group, tokens, n]."""
        x = self.model.model.embed_tokens.weight[torch.tensor(tokens)]
        own = torch.arange(self.length, self.length + len(tokens))
        attention = []
        for i, layer in enumerate(self.model.model.layers):
            hidden = norm(x, layer.input_layernorm.weight)
            project = lambda m: m(hidden).view(len(tokens), -1, DIM).transpose(0, 1)
            keys, values = turned(project(layer.self_attn.k_proj), own), project(layer.self_attn.v_proj)
            queries = turned(project(layer.self_attn.q_proj), own)
            out, rows = [], []
            for head in range(KV_HEADS):
                self.keys[i][head] = torch.cat([self.keys[i][head], keys[head]])
                self.values[i][head] = torch.cat([self.values[i][head], values[head]])
                self.positions[i][head] += own.tolist()
                q = queries[head * GROUP:(head + 1) * GROUP]
                scores = q @ self.keys[i][head].T / math.sqrt(DIM)
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
        self.draws = {(layer, head): uniform(seed, f"merge layer {layer} head {head}", 512)
                      for layer in range(3) for head in range(KV_HEADS)}

    def evict(self, run, layer, head):
        n = len(run.positions[layer][head])
        if n > self.room:
            run.keep(layer, head, list(range(self.room - self.recent)) + list(range(n - self.recent, n)))

    def start(self, run, attention):
        for layer in range(run.layers):
            for head in range(KV_HEADS):
                self.evict(run, layer, head)

    def __call__(self, run, layer, rows):
        for head in range(KV_HEADS):
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
        self.sums = [[head.sum((0, 1)) for head in rows] for rows in attention]
        self.threshold = [0.0] * run.layers
        for layer in range(run.layers):
            self.evict(run, layer, first=True)

    def __call__(self, run, layer, rows):
        for head in range(KV_HEADS):
            old = torch.cat([self.sums[layer][head], torch.zeros(1, dtype=torch.float64)])
            self.sums[layer][head] = old + rows[head].sum((0, 1))
        self.evict(run, layer, first=False)

    def evict(self, run, layer, first):
        room = self.rooms[layer]
        n = len(run.positions[layer][0])
        if n <= room:
            return
        kept, gone, nearest, similar = [], [], [], []
        for head in range(KV_HEADS):
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
        for head in range(KV_HEADS):
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
    """One pair: layers 1 and 2."""

    def __init__(self, t=0.6, retained=0.05):
        self.t, self.retained, self.limit = t, retained, {}

    def merge(self, run, begin, first):
        for head in range(KV_HEADS):
            for side, store in (("keys", run.keys), ("values", run.values)):
                low, high = store[1][head][begin:], store[2][head][begin:]
                cosine = torch.nn.functional.cosine_similarity(low, high, dim=-1).clamp(-1, 1)
                angle = cosine.acos()
                u, v = low / low.norm(dim=-1, keepdim=True), high / high.norm(dim=-1, keepdim=True)
                shared = (((1 - self.t) * angle).sin()[:, None] * u + (self.t * angle).sin()[:, None] * v)
                shared = shared / shared.norm(dim=-1, keepdim=True)
                if first:
                    self.limit[head, side] = angle.sort(descending=True).values[math.ceil(self.retained * len(angle)) - 1]
                merged = (angle < self.limit[head, side])[:, None]
                new_low = torch.where(merged, shared * low.norm(dim=-1, keepdim=True), low)
                new_high = torch.where(merged, shared * high.norm(dim=-1, keepdim=True), high)
                store[1][head] = torch.cat([store[1][head][:begin], new_low])
                store[2][head] = torch.cat([store[2][head][:begin], new_high])

    def start(self, run, attention):
        self.merge(run, 0, True)

    def __call__(self, run, layer, rows):
        if layer == 2:
            self.merge(run, len(run.positions[2][0]) - 1, False)


def run(model, tokens, forced, method):
    state = Run(model)
    _, attention = state.feed(tokens)
    method.start(state, attention)
    steps = {}
    for step, token in enumerate(forced):
        logits, _ = state.feed([token], method)
        if step in SHOWN:
            steps[step] = shown(logits)
    return {"positions": [[f"{sum(1 << p for p in head):x}" for head in layer] for layer in state.positions],
            "steps": steps}


@torch.no_grad()
def main():
    model = tiny_model().double()
    prompts = []
    for seed in range(5):
        torch.manual_seed(100 + seed)
        ids = torch.randperm(128).tolist()
        tokens, forced = ids[:100], ids[100:100 + STEPS]
        made = []
        for keep in KEEP:
            room = int(len(tokens) * keep)
            made.append(({"name": "cam", "merge": 8, "keep": keep}, Cam(room, 8)))
            made.append(({"name": "d2o", "keep": keep}, D2o(len(tokens), keep)))
        for retained in (0.02, 0.05, 0.2):
            made.append(({"name": "minicache", "start_layer": 1, "retained": retained}, MiniCache(retained=retained)))
        prompts.append({"tokens": tokens, "forced": forced,
                        "cases": [{"spec": spec} | run(model, tokens, forced, method) for spec, method in made]})
    json.dump({"prompts": prompts}, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
