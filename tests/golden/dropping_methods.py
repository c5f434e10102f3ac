"""Entries kept by dropping methods, by implementations that are not ours, for tests/methods/compression/*_test.cpp.

    pip install torch transformers kvpress
    python tests/golden/dropping_methods.py
    python tests/golden/dropping_methods.py MODEL.gguf > tests/golden/dropping_smollm2.json

Without an argument it writes dropping_methods/NAME.json for every method, and the model is the random one of
tests/support/tiny_model.h (its weights are drawn by harness/core/random.h's rule, so the test holds the same), with
grouped queries; with one it is that checkpoint, dequantised by transformers. Everything runs in float32 on the CPU. A
case names the method's settings and holds the kept positions of each layer and kv head as bits of a hexadecimal
number.

kvpress's own presses: StreamingLLM, SnapKV, ObservedAttention, Knorm, TOVA, KeyDiff, LagKV, PyramidKV, AdaKV, ChunkKV,
CriticalKV, CriticalAdaKV, Finch, CUR, Cap, Compactor and its two parts, EntropyGatedChunkKV, SimLayerKV,
PerLayerCompression; where they draw normal numbers, they get those of harness/core/normal_draws.h; of LagKV's equal
scores, which topk takes at will, one case takes the sinks and then the newest. Where kvpress has no such method, or
departs from the authors, the rule of the paper or of the authors' code is restated here in float64 over the attention
that transformers computes: H2O, TOVA without protection, RoCo, RaaS, Scissorhands, Keyformer without noise and with
noise of harness/core/random.h, SnapKV with other poolings and reductions, Ada-KV in the authors' form, LagKV in the
authors' form, FastGen's sets without token classes, the oracle from the library's own greedy continuation. Restated
decode steps really remove entries from the library's cache, head by head.

Of a checkpoint the file holds a digest of each layer's positions, and null for a layer whose choice differs between
float32 and float64, or is among equals, and so hangs on rounding; a null among the heads of the tiny model says the same. Written for torch
2.11, transformers 5.23, kvpress 0.5.5.
"""

import functools
import hashlib
import itertools
import json
import pathlib
import sys
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from by_method import write_prompts
from kvpress import (AdaKVPress, BlockPress, CapPress, ChunkKVPress, ChunkPress, CompactorPress, CriticalAdaKVPress,
                     CriticalKVPress, CURPress, EntropyGatedChunkKVPress, FinchPress, KeyDiffPress, KnormPress,
                     LagKVPress, LeverageScorePress, NonCausalAttnPress, ObservedAttentionPress,
                     PerLayerCompressionPress, PyramidKVPress, SimLayerKVPress, SnapKVPress, StreamingLLMPress,
                     TOVAPress)
from kvpress.utils import compute_n_kept
from random_stream import draw, mix, uniform
from tiny_model import tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import DynamicCache

KEEP = [0.75, 0.5, 0.25]
STEPS = 24
SNAP = {"name": "snapkv", "window": 8, "kernel": 5}
TEXTS = [
    "The harbour master wrote down every ship that came in before noon, its cargo, its master and the state of its "
    "sails, and in the evening he read the list to the council. ",
    "def merge(left, right):\n    result = []\n    while left and right:\n        result.append((left if left[0] < right[0] "
    "else right).pop(0))\n    return result + left + right\n",
    "Question: which of the five rivers reaches the sea first? The Adra is short and steep; the Belo winds; the Cana is "
    "dammed; the Dore freezes; the Elna has no mouth at all. ",
    "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144 are the first numbers of a sequence in which each is the sum of the two "
    "before it; 4, 9, 16, 25 are not. ",
    "Dear Miriam, the parcel arrived on Tuesday, three weeks late and with one corner crushed, but the glass was whole. "
    "Your brother asks whether you still keep bees. ",
]


class Prompt:
    """One prompt's full prefill: attention, caches, and what kvpress's presses take."""

    def __init__(self, model, ids):
        self.model, self.ids = model, ids
        calls = []
        hooks = [layer.self_attn.register_forward_hook(lambda m, a, k, o: calls.append((m, k)), with_kwargs=True)
                 for layer in model.model.layers]
        with torch.no_grad():
            out = model(torch.tensor([ids]), output_attentions=True, use_cache=True)
        for hook in hooks:
            hook.remove()
        for layer in model.model.layers:
            layer.self_attn.rotary_emb = model.model.rotary_emb
        self.calls, self.n = calls, len(ids)
        self.first_token = out.logits[0, -1].argmax().item()
        self.attention = [a[0].double() for a in out.attentions]  # [q_heads, n, n] a layer
        self.keys = [layer.keys for layer in out.past_key_values.layers]
        self.values = [layer.values for layer in out.past_key_values.layers]
        self.kv_heads = self.keys[0].shape[1]
        self.layers = len(calls)

    def grouped(self, layer):
        """[kv_heads, group, n, n]"""
        return self.attention[layer].view(self.kv_heads, -1, self.n, self.n)


def indices(kept, keys):
    """Where the kept keys [1, kv_heads, kept, dim] lie among `keys`, of which no two are equal: [kv_heads, kept]."""
    same = (kept[0].unsqueeze(2) == keys[0].unsqueeze(1)).all(-1)  # [kv_heads, kept, n]
    assert (same.sum(-1) == 1).all()
    return same.int().argmax(-1).sort(-1).values


def by_press(prompt, press, keep):
    """kvpress's own compress(); indices are read back from the keys it keeps, or from the entries it masks."""
    press.compression_ratio = 1 - keep
    kept = []
    for layer, (module, kwargs) in enumerate(prompt.calls):
        keys, values = prompt.keys[layer], prompt.values[layer]
        module.config._attn_implementation = "sdpa"  # with "eager" the wrappers refuse; nothing here attends
        module.masked_key_indices = None
        with torch.no_grad():
            out, _ = press.compress(module, kwargs["hidden_states"], keys, values, None, kwargs)
        module.config._attn_implementation = "eager"
        if module.masked_key_indices is not None:
            rows = torch.ones(prompt.kv_heads, prompt.n, dtype=torch.bool)
            _, heads, entries = module.masked_key_indices
            rows[heads, entries] = False
            kept.append([row.nonzero().flatten().tolist() for row in rows])
        else:
            kept.append(indices(out, keys).tolist())
    return kept


def by_layer(prompt, press, kept_shares):
    """PerLayerCompressionPress around a prefill of the model's own, each layer's keys read from the cache that it leaves."""
    cache = DynamicCache()
    with torch.no_grad(), PerLayerCompressionPress(press, [1 - share for share in kept_shares])(prompt.model):
        prompt.model(torch.tensor([prompt.ids]), past_key_values=cache)
    return [indices(layer.keys, keys).tolist() for layer, keys in zip(cache.layers, prompt.keys)]


def finch(prompt, keep, window, chunk=None):
    press = FinchPress(chunk_length=chunk, rerotate_keys=False)
    press.window_size = window
    return by_press(prompt, press, keep)


def normals(purpose, sizes):
    """harness/core/normal_draws.h: RandomStream(0, purpose)."""
    draws = uniform(0, purpose, 2 * int(np.prod(sizes)))
    flat = np.sqrt(-2 * np.log1p(-draws[0::2])) * np.cos(2 * np.pi * draws[1::2])
    return torch.tensor(flat.astype(np.float32)).view(sizes)


def by_drawing_press(prompt, press, keep, purpose):
    """by_press() with our normal numbers, one stream a layer where `purpose` has room for its number."""
    layer = itertools.count()
    ours = lambda *sizes, dtype=torch.float32, **_: normals(purpose.format(layer=next(layer)), sizes).to(dtype)
    with mock.patch("torch.randn", ours):
        return by_press(prompt, press, keep)


def without_ties(prompt, press, keep):
    """by_press() of a ScorerPress, None for a head whose last entry kept scores like the first one dropped."""
    kept = by_press(prompt, press, keep)
    for layer, (module, kwargs) in enumerate(prompt.calls):
        with torch.no_grad():
            scores = press.score(module, kwargs["hidden_states"], prompt.keys[layer], prompt.values[layer], None, kwargs)
        ordered, count = scores[0].sort(descending=True).values, int(prompt.n * keep)
        tied = ordered[:, count - 1] - ordered[:, count] < 1e-6 * (ordered[:, 0] - ordered[:, -1])
        kept[layer] = [None if tie else row for tie, row in zip(tied, kept[layer])]
    return kept


def critical_adakv(prompt, press, keep):
    """None for a head whose floor, which the press spares too, is more than the first stage of the paper."""
    kept = by_press(prompt, CriticalAdaKVPress(press), keep)
    floor = max(1, int(compute_n_kept(prompt.n, 1 - keep) * 0.2))
    return [[row if len(row) // 2 >= floor else None for row in layer] for layer in kept]


def simlayerkv(prompt, threshold):
    press, kept = SimLayerKVPress(lazy_threshold=threshold, n_last=2, n_recent=24, n_initial=4), []
    for layer, (module, kwargs) in enumerate(prompt.calls):
        keys = prompt.keys[layer]
        with torch.no_grad():
            out, _ = press.compress(module, kwargs["hidden_states"], keys, prompt.values[layer], None, kwargs)
        kept.append(indices(out, keys).tolist())
    return kept


def best(scores, count, sinks=0, recent=0):
    """Indices of one head: protected entries and the best of the rest."""
    n = len(scores)
    order = torch.as_tensor(scores)[sinks:n - recent].sort(descending=True, stable=True).indices  # equals: the lower index
    rest = order[:count - sinks - recent] + sinks
    return sorted(list(range(sinks)) + rest.tolist() + list(range(n - recent, n)))


def clear(scores, count, recent):
    """best(), or None where float32 cannot tell the last one kept from the first one dropped (yet they are not equal)."""
    ordered = scores[:len(scores) - recent].sort(descending=True).values
    gap = (ordered[count - recent - 1] - ordered[count - recent]).item()
    if 0 < gap < 1e-6 * (ordered[0] - ordered[-1]).item():
        return None
    return best(scores, count, recent=recent)


def observed_attention(prompt, keep):
    kept = []
    for layer, (module, kwargs) in enumerate(prompt.calls):
        scores = ObservedAttentionPress().score(module, kwargs["hidden_states"], prompt.keys[layer], prompt.values[layer],
                                                prompt.attention[layer][None], kwargs)[0]
        kept.append([clear(row, int(prompt.n * keep), 0) for row in scores])
    return kept


def window_votes(prompt, layer, window):
    """[kv_heads, group, n - window]"""
    return prompt.grouped(layer)[:, :, -window:, :-window].mean(2)


def snapkv(prompt, keep, window=8, kernel=5, pool="avg", gqa="mean", order="pool_first"):
    """The authors' pooling and the reductions of KVCache-Factory and Ada-KV, where the group comes first."""
    def smooth(x):
        if pool == "avg":
            return F.avg_pool1d(x, kernel, 1, kernel // 2)
        return F.max_pool1d(x, kernel, 1, kernel // 2)

    def reduce(x):
        return {"mean": x.mean(1), "max": x.amax(1), "sum": x.sum(1)}[gqa]

    kept = []
    for layer in range(prompt.layers):
        votes = window_votes(prompt, layer, window)
        scores = reduce(smooth(votes.flatten(0, 1)).view_as(votes)) if order == "pool_first" else smooth(reduce(votes))
        full = F.pad(scores, (0, window))
        kept.append([clear(row, int(prompt.n * keep), window) for row in full])
    return kept


def adakv_authors(prompt, keep, window=8, kernel=5, floor=0.2):
    kept = []
    for layer in range(prompt.layers):
        votes = window_votes(prompt, layer, window)
        scores = F.avg_pool1d(votes.flatten(0, 1), kernel, 1, kernel // 2).view_as(votes).mean(1)
        base = int(prompt.n * keep) - window
        winners = scores.flatten().topk(prompt.kv_heads * base).indices // scores.shape[1]
        rows = []
        for head in range(prompt.kv_heads):
            count = round(int((winners == head).sum()) * (1 - floor) + int(base * floor))
            rows.append(best(F.pad(scores[head], (0, window)), count + window, recent=window))
        kept.append(rows)
    return kept


def lagkv_equals(prompt, press, keep):
    """By the press's scores; of the entries that score 1, which topk takes at will, the sinks and then the newest."""
    kept, n = [], prompt.n
    for layer, (module, kwargs) in enumerate(prompt.calls):
        scores = press.score(module, kwargs["hidden_states"], prompt.keys[layer], prompt.values[layer], None, kwargs)
        order = lambda row: sorted(range(n), key=lambda i: (-row[i].item(), i >= press.n_sink, -i))
        kept.append([sorted(order(row)[:compute_n_kept(n, 1 - keep)]) for row in scores[0]])
    return kept


def lagkv_authors(prompt, keep, sinks=4, lag=16):
    def side(x, begin):
        part, reference = x[begin:begin + lag].double(), x[begin + lag:begin + 2 * lag].double()
        low, high = reference.amin(0), reference.amax(0)
        return ((part - low) / (high - low)).std(-1).softmax(-1)

    kept = []
    for layer in range(prompt.layers):
        rows = []
        for head in range(prompt.kv_heads):
            row, begin = list(range(sinks)), sinks
            while begin + 2 * lag <= prompt.n:
                score = side(prompt.keys[layer][0, head], begin) + side(prompt.values[layer][0, head], begin)
                row += [begin + i for i in sorted(score.topk(int(keep * lag)).indices.tolist())]
                begin += lag
            rows.append(row + list(range(begin, prompt.n)))
        kept.append(rows)
    return kept


class Rule:
    """A method that evicts while decoding: state of each entry, and what stays of one head."""

    def __init__(self, budget):
        self.budget = budget

    def start(self, attention):  # [kv_heads, group, n, n] -> state [kv_heads, n, width]
        raise NotImplementedError

    def step(self, state, row, position):  # state [kv_heads, n, width] with the new entry at 0, row [kv_heads, group, n]
        raise NotImplementedError

    def keep(self, state, prompt):  # one head's [n, width] -> indices
        raise NotImplementedError


class H2o(Rule):
    def start(self, attention):
        return attention.sum((1, 2)).unsqueeze(-1)

    def step(self, state, row, position):
        state[..., 0] += row.sum(1)

    def keep(self, state, prompt):
        return best(state[:, 0], self.budget, recent=self.budget // 2)


class Tova(Rule):
    def start(self, attention):
        return attention[:, :, -1].mean((0, 1)).expand(attention.shape[0], -1).unsqueeze(-1).clone()

    def step(self, state, row, position):
        state[..., 0] = row.mean((0, 1))

    def keep(self, state, prompt):
        return best(state[:, 0], self.budget)


class Raas(Rule):
    """The time of an entry is the last step in which it was used, and of those behind the first `stay` the oldest leave."""

    def __init__(self, budget, stay, share=0.5, alpha=None):
        super().__init__(budget)
        self.stay, self.share, self.alpha = stay, share, alpha

    def start(self, attention):
        return torch.arange(attention.shape[-1]).double().expand(attention.shape[0], -1).unsqueeze(-1).clone()

    def step(self, state, row, position):
        for times, used in zip(state[..., 0], row.amax(1)):
            top = used.topk(max(1, int(self.share * len(used)))).indices
            times[used >= self.alpha if self.alpha else top] = position
            times[-1] = position

    def keep(self, state, prompt):
        by_age = sorted(range(self.stay, len(state)), key=lambda i: (state[i, 0].item(), i))
        return list(range(self.stay)) + sorted(by_age[len(state) - self.budget:])


class Keyformer(H2o):
    """Without noise; the prompt has temperature 1, decode step t has 1 + t / 100."""

    def __init__(self, budget, n):
        super().__init__(budget)
        self.n = n

    def step(self, state, row, position):
        state[..., 0] += (row.log() / (1 + 0.01 * (position - self.n + 1))).softmax(-1).sum(1)

    def keep(self, state, prompt):
        return best(state[:, 0], self.budget, recent=int(0.3 * self.budget + 1e-9))


def nth(sequence, index):
    """SplitMix64's value number `index`."""
    return mix((sequence + index * 0x9E3779B97F4A7C15) % 2**64)


class NoisyKeyformer(Keyformer):
    """The same under Gumbel noise, a stream of draws for each layer, query head and query."""

    def __init__(self, budget, n):
        super().__init__(budget, n)
        self.layer = -1

    def start(self, attention):
        self.layer += 1
        heads = attention.flatten(0, 1)
        n = heads.shape[-1]
        total = torch.zeros(len(heads), n, dtype=torch.float64)
        for head, rows in enumerate(heads):
            noise = torch.stack([self.noise(head, t, n) for t in range(n)])
            total[head] = (rows.log() + noise).softmax(-1).sum(0)
        return total.view(attention.shape[0], -1, n).sum(1).unsqueeze(-1)

    def noise(self, head, query, n):
        """kernels/attention_sums/gumbel_noise.h: shuffled quantiles, from a place that the key and each 512 choose."""
        key = draw(0, f"keyformer/{self.layer}/{head}", query)
        runs = [self.quantiles().roll(-(nth(key, run) % 65536))[:512] for run in range((n + 511) // 512)]
        return torch.cat(runs)[:n]

    @staticmethod
    @functools.cache
    def quantiles():
        order = list(range(65536))
        for i in range(65535, 0, -1):
            j = nth(0, i) % (i + 1)
            order[i], order[j] = order[j], order[i]
        return -(-((torch.tensor(order, dtype=torch.float64) + 0.5) / 65536).log()).log()


def fastgen(prompt, recovery):
    """The first of: 4 first entries; 30% of the largest sums; 30% of the newest as well; everything."""
    share, kept = int(0.3 * prompt.n), []
    for layer in range(prompt.layers):
        rows = []
        for sums in prompt.grouped(layer).mean(1).sum(1):
            first = set(range(4))
            order = sums[4:].sort(descending=True, stable=True).indices + 4
            frequent = first | set(order[:share].tolist())
            for chosen in (first, frequent, frequent | set(range(prompt.n - share, prompt.n)), set(range(prompt.n))):
                if sums[sorted(chosen)].sum() / prompt.n >= recovery:
                    break
            rows.append(sorted(chosen))
        kept.append(rows)
    return kept


def future_oracle(prompt, keep, horizon):
    cache = DynamicCache()
    for layer in range(prompt.layers):
        cache.update(prompt.keys[layer].clone(), prompt.values[layer].clone(), layer)
    totals = [torch.zeros(prompt.kv_heads, prompt.n, dtype=torch.float64) for _ in range(prompt.layers)]
    token = prompt.first_token
    for _ in range(horizon):
        with torch.no_grad():
            out = prompt.model(torch.tensor([[token]]), past_key_values=cache, output_attentions=True, use_cache=True)
        for layer, attention in enumerate(out.attentions):
            totals[layer] += attention[0, :, 0, :prompt.n].double().view(prompt.kv_heads, -1, prompt.n).sum(1)
        token = out.logits[0, -1].argmax().item()
    return [[best(row, int(prompt.n * keep)) for row in total] for total in totals]


class RoCo(Rule):
    def start(self, attention):
        p = attention.mean(1)
        seen = torch.arange(p.shape[-1], 0, -1).double().expand(p.shape[0], -1)
        return torch.stack([p.sum(1), p.square().sum(1), seen], dim=-1)

    def step(self, state, row, position):
        p = row.mean(1)
        state += torch.stack([p, p.square(), torch.ones_like(p)], dim=-1)

    def keep(self, state, prompt):
        n = len(state)
        mean = state[:, 0] / state[:, 2]
        std = (state[:, 1] / state[:, 2] - mean.square()).clamp_min(0).sqrt()
        std[-10:] = 1e9
        if prompt:
            std[:4] = 1e9
            count = max(self.budget - int(0.1 * self.budget) - 4, n - self.budget)
        else:
            count = self.budget - int(0.3 * self.budget)
        count = max(min(count, int((std < 1e9).sum())), n - self.budget)  # the code lets ties among 1e9 in: no rule
        feasible = std.topk(count, largest=False).indices
        gone = feasible[mean[feasible].topk(n - self.budget, largest=False).indices].tolist()
        return [i for i in range(n) if i not in gone]


class Scissorhands(Rule):
    """history 20, recent 4, half of the budget leaves at once; among equals the older entry leaves."""

    def start(self, attention):
        p, n = attention.mean(1), attention.shape[-1]
        state = torch.zeros(p.shape[0], n, 20, dtype=torch.float64)
        for t in range(max(0, n - 20), n):
            state[:, :t + 1, t % 20] = (p[:, t, :t + 1] < 1 / (t + 1)).double()
        return state

    def step(self, state, row, position):
        p = row.mean(1)
        state[..., position % 20] = (p < 1 / p.shape[-1]).double()

    def keep(self, state, prompt):
        n = len(state)
        gone = n - self.budget if prompt else self.budget // 2
        order = sorted(range(n - 4), key=lambda i: (-state[i].sum().item(), i))
        return sorted(set(range(n)) - set(order[:gone]))


def snapkv_chunks(prompt, keep, chunk):
    """Each chunk by the votes of its own last queries over its own entries. kvpress's ChunkPress rotates these queries
    to the end of the prompt, where they are not: its votes are not followed."""
    kept = []
    for layer in range(prompt.layers):
        rows = [[] for _ in range(prompt.kv_heads)]
        for begin in range(0, prompt.n, chunk):
            end = min(begin + chunk, prompt.n)
            own = prompt.grouped(layer)[:, :, end - 8:end, begin:end]
            votes = (own / own.sum(-1, keepdim=True))[..., :-8].mean(2)
            scores = F.avg_pool1d(votes.flatten(0, 1), 5, 1, 2).view_as(votes).mean(1)
            for head, scored in enumerate(F.pad(scores, (0, 8))):
                chosen = clear(scored, int((end - begin) * keep), 8)
                rows[head] = None if chosen is None or rows[head] is None else rows[head] + [begin + i for i in chosen]
        kept.append(rows)
    return kept


def decode_at_intervals(prompt, press, keep, interval, target, forced):
    """kvpress's PrefillDecodingPress, its two halves called by hand; target(tokens so far)."""
    positions = by_press(prompt, press, keep)
    first = [[list(row) for row in layer] for layer in positions]
    cache = DynamicCache()
    for layer in range(prompt.layers):
        wide = torch.tensor(positions[layer])[None, :, :, None].expand(-1, -1, -1, prompt.keys[0].shape[-1])
        cache.update(prompt.keys[layer].gather(2, wide), prompt.values[layer].gather(2, wide), layer)
    for step, token in enumerate(forced):
        with torch.no_grad():
            prompt.model(torch.tensor([[token]]), past_key_values=cache, use_cache=True,
                         position_ids=torch.tensor([[prompt.n + step]]))
        for layer in range(prompt.layers):
            for row in positions[layer]:
                row.append(prompt.n + step)
            held = cache.layers[layer]
            count = target(prompt.n + step + 1)
            if (step + 1) % interval or held.keys.shape[2] <= count:
                continue
            scores = press.score(prompt.calls[layer][0], None, held.keys, held.values, None, {})
            index = scores.topk(count, dim=-1).indices.sort(dim=-1).values
            wide = index.unsqueeze(-1).expand(-1, -1, -1, held.keys.shape[-1])
            held.keys, held.values = held.keys.gather(2, wide), held.values.gather(2, wide)
            positions[layer] = [[row[i] for i in list(kept)] for row, kept in zip(positions[layer], index[0].tolist())]
    return first, positions


def decode(prompt, rule, forced):
    """Positions after the prompt, and after feeding the forced tokens with the library's cache really shortened."""
    cache = DynamicCache()
    for layer in range(prompt.layers):
        cache.update(prompt.keys[layer].clone(), prompt.values[layer].clone(), layer)
    states = [rule.start(prompt.grouped(layer)) for layer in range(prompt.layers)]
    positions = [[list(range(prompt.n)) for _ in range(prompt.kv_heads)] for _ in range(prompt.layers)]

    def evict(is_prompt):
        for layer in range(prompt.layers):
            if states[layer].shape[1] <= rule.budget:
                continue
            rows = [rule.keep(state, is_prompt) for state in states[layer]]
            index = torch.tensor(rows)
            states[layer] = torch.stack([state[row] for state, row in zip(states[layer], index)])
            wide = index[None, :, :, None].expand(-1, -1, -1, prompt.keys[0].shape[-1])
            cache.layers[layer].keys = cache.layers[layer].keys.gather(2, wide)
            cache.layers[layer].values = cache.layers[layer].values.gather(2, wide)
            positions[layer] = [[held[i] for i in row] for held, row in zip(positions[layer], rows)]

    evict(True)
    first = [[list(row) for row in layer] for layer in positions]
    for step, token in enumerate(forced):
        position = prompt.n + step
        with torch.no_grad():
            out = prompt.model(torch.tensor([[token]]), past_key_values=cache, position_ids=torch.tensor([[position]]),
                               output_attentions=True, use_cache=True)
        for layer in range(prompt.layers):
            row = out.attentions[layer][0, :, 0].double().view(prompt.kv_heads, -1, out.attentions[layer].shape[-1])
            states[layer] = F.pad(states[layer], (0, 0, 0, 1))
            rule.step(states[layer], row, position)
            for held in positions[layer]:
                held.append(position)
        evict(False)
    return first, positions


def cases(prompt, keep, forced):
    """(settings, kept, kept after the forced tokens or None)"""
    snap = lambda: SnapKVPress(window_size=8, kernel_size=5)
    yield {"name": "streaming_llm", "sinks": 4}, by_press(prompt, StreamingLLMPress(n_sink=4), keep), None
    yield {"name": "sliding_window"}, by_press(prompt, StreamingLLMPress(n_sink=0), keep), None
    yield {"name": "knorm"}, by_press(prompt, KnormPress(), keep), None
    yield SNAP, by_press(prompt, snap(), keep), None
    yield {"name": "tova", "keep_newest": True}, by_press(prompt, TOVAPress(), keep), None
    yield {"name": "keydiff"}, by_press(prompt, KeyDiffPress(), keep), None
    if forced:  # of many partitions' equal ranks torch.topk takes any: not on the long prompts of a checkpoint
        yield {"name": "lagkv", "lag": 16}, by_press(prompt, LagKVPress(lag_size=16), keep), None
        yield {"name": "lagkv", "lag": 40}, lagkv_equals(prompt, LagKVPress(lag_size=40), keep), None
    yield ({"name": "lagkv", "lag": 16, "cross_scoring": True},
           by_press(prompt, LagKVPress(lag_size=16, cross_scoring=True), keep), None)
    yield ({"name": "pyramidkv", "scorer": SNAP, "budget_rule": {"name": "pyramid", "beta": 4}},
           by_press(prompt, PyramidKVPress(window_size=8, kernel_size=5, beta=4), keep), None)
    yield {"name": "adakv", "scorer": SNAP}, by_press(prompt, AdaKVPress(snap()), keep), None
    yield ({"name": "chunkkv", "scorer": SNAP, "chunk_size": 7},
           by_press(prompt, ChunkKVPress(snap(), chunk_length=7), keep), None)
    yield {"name": "chunkkv", "scorer": {"name": "keydiff"}}, by_press(prompt, ChunkKVPress(KeyDiffPress()), keep), None
    yield {"name": "criticalkv", "scorer": SNAP}, by_press(prompt, CriticalKVPress(snap()), keep), None
    yield {"name": "criticalkv", "scorer": SNAP, "budget_rule": "heads"}, critical_adakv(prompt, snap(), keep), None
    yield SNAP | {"pool": "max", "kernel": 7}, snapkv(prompt, keep, pool="max", kernel=7), None
    yield (SNAP | {"pool": "max", "gqa": "mean", "order": "group_first"},
           snapkv(prompt, keep, pool="max", order="group_first"), None)
    yield SNAP | {"gqa": "max"}, snapkv(prompt, keep, gqa="max"), None
    yield ({"name": "adakv", "scorer": SNAP, "budget_rule": {"name": "heads", "form": "authors"}},
           adakv_authors(prompt, keep), None)
    yield {"name": "lagkv", "lag": 16, "form": "authors"}, lagkv_authors(prompt, keep), None
    yield {"name": "h2o", "recent_share": 0, "normalise": "visible"}, observed_attention(prompt, keep), None
    yield {"name": "knorm", "prefill_chunk": 30}, by_press(prompt, ChunkPress(KnormPress(), 30), keep), None
    yield SNAP | {"window": 12, "kernel": 1, "normalise": "visible"}, finch(prompt, keep, 12), None
    yield {"name": "keydiff", "prefill_block": 16}, by_press(prompt, BlockPress(KeyDiffPress(), 16), keep), None
    yield {"name": "curdkv"}, by_press(prompt, CURPress(), keep), None
    yield {"name": "capkv"}, by_press(prompt, CapPress(), keep), None
    yield ({"name": "compactor", "blending": 1 - keep, "chunk": 32, "sketch": 8},
           by_drawing_press(prompt, CompactorPress(chunk_size=32, sketch_dimension=8), keep, "compactor/{layer}"),
           None)
    parts = {"name": "compactor", "sinks": 0, "recent": 0}
    yield (parts | {"part": "leverage"}, by_drawing_press(prompt, LeverageScorePress(), keep, "compactor/{layer}"), None)
    yield (parts | {"part": "attention", "chunk": 25},
           without_ties(prompt, NonCausalAttnPress(chunk_size=25), keep), None)
    yield ({"name": "chunkkv", "scorer": {"name": "knorm"}, "chunk_size": 10, "spiky": 4},
           by_press(prompt, EntropyGatedChunkKVPress(KnormPress()), keep), None)
    threshold = {0.75: 0.2, 0.5: 0.28, 0.25: 0.4}[keep] if forced else keep
    yield ({"name": "simlayerkv", "threshold": threshold, "last": 2, "recent": 24},
           simlayerkv(prompt, threshold), None)
    if forced:  # the tiny model alone
        shares = [0.75, 1.25, 1.0]
        yield ({"name": "knorm", "budget_rule": {"name": "layers", "shares": shares}},
               by_layer(prompt, KnormPress(), [keep * share for share in shares]), None)
        yield ({"name": "lagkv", "lag": 4, "cross_scoring": True, "prefill_chunk": 50},
               by_press(prompt, ChunkPress(LagKVPress(lag_size=4, cross_scoring=True), 50), keep), None)
        yield SNAP | {"window": 4, "kernel": 1, "normalise": "visible", "chunk": 40}, finch(prompt, keep, 4, 40), None
        yield SNAP | {"prefill_chunk": 50}, snapkv_chunks(prompt, keep, 50), None
        yield ({"name": "keydiff", "decode_interval": 6, "decode_tokens": 20},
               *decode_at_intervals(prompt, KeyDiffPress(), keep, 6, lambda _: 20, forced))
        yield ({"name": "keydiff", "decode_interval": 8, "decode_keep": 0.25},
               *decode_at_intervals(prompt, KeyDiffPress(), keep, 8, lambda n: int(n * 0.25), forced))
        yield ({"name": "curdkv", "leverage": "mean", "window": 0, "sinks": 2, "sketch": 20},
               by_drawing_press(prompt, CURPress(num_sinks=2, leverage_type="kv_avg", use_local_approximation=False,
                                                 use_random_leverage=True), keep, "curdkv"), None)
        yield ({"name": "capkv", "tau": 2, "future": 40, "sinks": 6},
               by_press(prompt, CapPress(tau=2.0, n_future_positions=40, n_sink=6), keep), None)
        yield ({"name": "chunkkv", "scorer": {"name": "keydiff"}, "chunk_size": 7, "spiky": 2},
               by_press(prompt, EntropyGatedChunkKVPress(KeyDiffPress(), chunk_length=7, low_entropy_chunk_length=2), keep),
               None)
    budget = int(prompt.n * keep)
    yield {"name": "h2o"}, *decode(prompt, H2o(budget), forced)
    yield {"name": "tova"}, *decode(prompt, Tova(budget), forced)
    if forced:
        count = {0.75: 6, 0.5: 10, 0.25: 14}[keep]
        beside = {"name": "raas", "protect_prompt": True, "tokens": count}
        yield beside, *decode(prompt, Raas(prompt.n + count, prompt.n), forced)
        yield (beside | {"alpha": 0.01}, *decode(prompt, Raas(prompt.n + count, prompt.n, alpha=0.01), forced))
        yield {"name": "raas"}, *decode(prompt, Raas(budget, 0), forced)
    yield {"name": "keyformer", "gumbel": False}, *decode(prompt, Keyformer(budget, prompt.n), forced)
    yield {"name": "keyformer"}, decode(prompt, NoisyKeyformer(budget, prompt.n), [])[0], None
    yield {"name": "fastgen", "recovery": 0.5 + keep / 2}, fastgen(prompt, 0.5 + keep / 2), None
    yield {"name": "future_oracle", "horizon": 8}, future_oracle(prompt, keep, 8), None
    yield {"name": "roco"}, *decode(prompt, RoCo(budget), forced)
    yield ({"name": "scissorhands", "history": 20, "recent": 4}, *decode(prompt, Scissorhands(budget), forced))


def budgeted(spec, keep):
    return spec if {"recovery", "threshold", "tokens"} & spec.keys() else spec | {"keep": keep}


def mask(row):
    return row and f"{sum(1 << i for i in row):x}"


def masks(kept):
    return kept and [[mask(row) for row in layer] for layer in kept]


def tiny():
    model = tiny_model()
    prompts = []
    for seed in range(5):
        torch.manual_seed(100 + seed)
        ids = torch.randperm(128).tolist()  # no token twice: equal keys tie, and ties are nobody's rule
        prompts.append({"tokens": ids[:100], "forced": ids[100:100 + STEPS], "cases": []})
        prompt = Prompt(model, ids[:100])
        for keep in KEEP:
            for spec, kept, later in cases(prompt, keep, prompts[-1]["forced"]):
                prompts[-1]["cases"].append(
                    {"spec": budgeted(spec, keep), "kept": masks(kept), "decoded": masks(later)})
    return prompts


def digests(kept):
    return [None if None in layer else
            hashlib.sha256(json.dumps(layer, separators=(",", ":")).encode()).hexdigest()[:10] for layer in kept]


def tied(spec):
    """Whether equal tokens, which a repeated text has, score alike in the first layer: there their keys before rotation
    and the lengths of these are equal, and only rounding tells them apart."""
    return spec["name"] in ("curdkv", "compactor") or "spiky" in spec


def checkpoint(path):
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    prompts = []
    runs = []
    for precise in (False, True):
        if precise:
            model = model.double()
        for index, text in enumerate(TEXTS):
            ids = tokenizer(text * 6, add_special_tokens=False).input_ids[:200]
            prompt = Prompt(model, ids)
            found = [(budgeted(spec, keep), digests(kept)) for keep in KEEP for spec, kept, _ in cases(prompt, keep, [])]
            if not precise:
                prompts.append({"tokens": ids})
                runs.append(found)
                continue
            prompts[index]["cases"] = [
                {"spec": spec, "layers": [a if a == b and (layer > 0 or not tied(spec)) else None
                                          for layer, (a, b) in enumerate(zip(single, double))]}
                for (spec, single), (_, double) in zip(runs[index], found)]
    return {"model": path.name, "prompts": prompts}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(checkpoint(pathlib.Path(sys.argv[1])), separators=(",", ":")))
    else:
        write_prompts(__file__, tiny())
