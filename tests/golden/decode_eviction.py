"""Entries kept by methods that evict while decoding, by their authors' code, for tests/methods/compression/*_test.cpp.

    pip install torch transformers kvpress
    git clone https://github.com/Zefan-Cai/R-KV && git clone https://github.com/WeianMao/triattention
    python tests/golden/decode_eviction.py FOLDER_OF_CLONES

Writes decode_eviction/NAME.json: prompts, specs and kept positions as in dropping_methods.py, after the prompt and after
forced tokens, with the library's cache really shortened. Run as they are: R-KV's R1KV.update_kv with the functions of
its rkv/utils.py; kvpress's DMSPress; TriAttention's invert_rope, compute_frequency_statistics_from_means and
score_keys_for_round, in float64 because angles of 65536 positions are too large for float32, whose scores its
TriAttention class brings to mean 0 and deviation 1 and reduces over a group. Where the prompt is protected, the rule
gets the generated entries alone, as the authors of TriAttention do it.
Written for torch 2.11, transformers 5.23, kvpress 0.5.5; R-KV d15c976, triattention c3744ee.
"""

import pathlib
import sys
import types

import torch
from authors_code import module_of
from by_method import write_prompts
from dropping_methods import KEEP, STEPS, Prompt, indices, masks
from kvpress import DMSPress, KeyDiffPress, KnormPress
from random_stream import uniform
from tiny_model import tiny_model
from transformers.cache_utils import DynamicCache
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

LAYERS, Q_HEADS, KV_HEADS, DIM = 3, 4, 2, 32
INTERVAL, GENERATED = 12, 10


def drawn(purpose, shape, scale):
    """draw() of tests/methods/compression/learned_golden.h."""
    values = uniform(1, purpose, int(torch.tensor(shape).prod()))
    return torch.tensor(scale * (2 * values - 1)).float().view(*shape)


def queries_of(module, kwargs):
    """Rotated queries of a call of an attention layer: [1, q_heads, tokens, head_dim]."""
    hidden = kwargs["hidden_states"]
    q = module.q_proj(hidden).view(1, hidden.shape[1], -1, DIM).transpose(1, 2)
    return apply_rotary_pos_emb(q, q, *kwargs["position_embeddings"])[0]


class Rkv:
    def __init__(self, folder, window=8):
        self.utils = module_of(folder / "R-KV/rkv/utils.py")
        package = types.ModuleType("rkv_compression")
        package.cal_similarity, package.compute_attention_scores = self.utils.cal_similarity, self.utils.compute_attention_scores
        sys.modules["rkv_compression"] = package
        self.code = module_of(folder / "R-KV/rkv/compression/r1_kv.py", edits=[("from . import", "from rkv_compression import")])
        self.window = window
        self.spec = {"name": "rkv"} if window == 8 else {"name": "rkv", "window": window}

    def choose(self, layer, keys, values, queries, positions, count):
        if keys.shape[2] <= count:
            return None
        cluster = self.code.R1KV(budget=count, window_size=self.window, kernel_size=7, mix_lambda=0.1)
        return indices(cluster.update_kv(keys, queries[:, :, -self.window:], values)[0], keys)


class TriAttention:
    spec = {"name": "triattention"}

    def __init__(self, folder):
        self.code = module_of(folder / "triattention/triattention/methods/pruning_utils.py",
                              edits=[("dtype=torch.float32", "dtype=torch.float64")])
        self.frequencies = 10000.0 ** (-torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)
        self.mean, self.norm = [], []
        for layer in range(LAYERS):
            mean = drawn(f"layers.{layer}.query_mean", [Q_HEADS, DIM], 1.0)
            self.mean.append(torch.complex(mean[:, :DIM // 2].double(), mean[:, DIM // 2:].double()))
            self.norm.append(self.mean[-1].abs() + drawn(f"layers.{layer}.query_norm", [Q_HEADS, DIM // 2], 0.5).abs())

    def choose(self, layer, keys, values, queries, positions, count):
        if keys.shape[2] <= count:
            return None
        offsets, rows = self.code.build_geometric_offsets(65536, "cpu"), []
        now = int(max(max(row) for row in positions)) + 1
        for head in range(Q_HEADS):
            own = torch.tensor(positions[head // 2])
            angles = own[:, None].double() * self.frequencies.repeat(2)
            plain = self.code.invert_rope(keys[0, head // 2].double(), angles.cos(), angles.sin(), 1.0)
            amp, phi, extra = self.code.compute_frequency_statistics_from_means(self.mean[layer][head], self.norm[layer][head], plain)
            scores = self.code.score_keys_for_round(own, now, amp, phi, self.frequencies, extra, offsets, "mean",
                                                    torch.ones(DIM // 2, dtype=torch.float64))
            rows.append((scores - scores.mean()) / scores.std(unbiased=False).clamp_min(1e-6))
        return torch.stack(rows).view(KV_HEADS, 2, -1).amax(1).topk(count, dim=-1).indices.sort(-1).values


class Press:
    def __init__(self, name, press):
        self.spec, self.press = {"name": name}, press

    def choose(self, layer, keys, values, queries, positions, count):
        if keys.shape[2] <= count:
            return None
        return self.press.score(None, None, keys, values, None, {})[0].topk(count, dim=-1).indices.sort(-1).values


def decode(prompt, rule, forced, budget, stay, first_rule=None):
    """Positions after the prompt, compressed by `first_rule` if there is one, and after the forced tokens; of `stay`
    first entries the rule sees nothing."""
    cache = DynamicCache()
    positions = [[list(range(prompt.n)) for _ in range(KV_HEADS)] for _ in range(LAYERS)]
    queries = [queries_of(module, kwargs) for module, kwargs in prompt.calls]
    for layer in range(LAYERS):
        cache.update(prompt.keys[layer].clone(), prompt.values[layer].clone(), layer)

    def evict(rule):
        for layer in range(LAYERS):
            held = cache.layers[layer]
            own = [row[stay:] for row in positions[layer]]
            index = rule.choose(layer, held.keys[:, :, stay:], held.values[:, :, stay:], queries[layer], own, budget)
            if index is None:
                continue
            index = torch.cat([torch.arange(stay).expand(KV_HEADS, -1), index + stay], 1)
            wide = index[None, :, :, None].expand(-1, -1, -1, DIM)
            held.keys, held.values = held.keys.gather(2, wide), held.values.gather(2, wide)
            positions[layer] = [[row[i] for i in kept] for row, kept in zip(positions[layer], index.tolist())]

    if stay == 0:
        evict(first_rule or rule)
    first = [[list(row) for row in layer] for layer in positions]
    queries[:] = [layer[:, :, :0] for layer in queries]
    for step, token in enumerate(forced):
        calls = []
        hooks = [layer.self_attn.register_forward_hook(lambda m, a, k, o: calls.append((m, k)), with_kwargs=True)
                 for layer in prompt.model.model.layers]
        with torch.no_grad():
            prompt.model(torch.tensor([[token]]), past_key_values=cache, use_cache=True,
                         position_ids=torch.tensor([[prompt.n + step]]))
            for layer, call in enumerate(calls):
                queries[layer] = torch.cat([queries[layer], queries_of(*call)], 2)
        for hook in hooks:
            hook.remove()
        for layer in positions:
            for row in layer:
                row.append(prompt.n + step)
        if (step + 1) % INTERVAL == 0:
            evict(rule)
    return first, positions


def thresholded(prompt, press, threshold, window):
    """kvpress's DMSPress after the prompt."""
    outer = DMSPress(press, threshold=threshold, sliding_window_size=window)
    cache, kept = DynamicCache(), []
    for layer, (module, kwargs) in enumerate(prompt.calls):
        cache.update(prompt.keys[layer], prompt.values[layer], layer)
        module.masked_key_indices = None
        outer.forward_hook(module, [], {**kwargs, "past_key_values": cache, "cache_position": torch.arange(prompt.n)}, [None])
        rows = torch.ones(KV_HEADS, prompt.n, dtype=torch.bool)
        if module.masked_key_indices is not None:
            rows[module.masked_key_indices[1], module.masked_key_indices[2]] = False
        kept.append([row.nonzero().flatten().tolist() for row in rows])
    return kept


@torch.no_grad()
def cases(prompt, folder, forced):
    keydiff = Press("keydiff", KeyDiffPress())
    for rule in (Rkv(folder), TriAttention(folder)):
        for keep in KEEP:
            first, later = decode(prompt, rule, forced, int(prompt.n * keep), 0)
            yield rule.spec | {"decode_interval": INTERVAL, "keep": keep}, first, later
    for rule in (Rkv(folder, window=4), TriAttention(folder), keydiff):
        first, later = decode(prompt, rule, forced, GENERATED, prompt.n)
        yield rule.spec | {"decode_interval": INTERVAL, "protect_prompt": True, "tokens": GENERATED}, first, later
    first, later = decode(prompt, keydiff, forced, prompt.n // 2, 0, Press("knorm", KnormPress()))
    yield {"name": "knorm", "decode_interval": INTERVAL, "decode_scorer": keydiff.spec, "keep": 0.5}, first, later
    yield ({"name": "keydiff", "threshold": -0.1, "protect_window": 16}, thresholded(prompt, KeyDiffPress(), -0.1, 16), None)
    yield {"name": "knorm", "threshold": -19, "protect_window": 40}, thresholded(prompt, KnormPress(), -19, 40), None


def main():
    folder, model, prompts = pathlib.Path(sys.argv[1]), tiny_model(), []
    for seed in range(5):
        torch.manual_seed(100 + seed)
        ids = torch.randperm(128).tolist()
        forced = ids[100:100 + STEPS]
        found = cases(Prompt(model, ids[:100]), folder, forced)
        prompts.append({"tokens": ids[:100], "forced": forced,
                        "cases": [{"spec": spec, "kept": masks(kept), "decoded": masks(later)} for spec, kept, later in found]})
    write_prompts(__file__, prompts)


if __name__ == "__main__":
    main()
