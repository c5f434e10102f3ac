"""Selections of kvpress's learned and calibrated methods on the default model, with the weights that this project fitted
for it, for tests/methods/compression/kept_smollm2_test.cpp.

    pip install torch transformers kvpress
    python tests/golden/learned_smollm2.py MODEL.gguf configs/fitted/smollm2-135m > tests/golden/learned_smollm2.json

Texts and form are those of dropping_smollm2.json, 200 tokens each: a digest of each layer's kept positions, null where the choice hangs on
rounding: a head's last entry kept scores like the first one dropped (in the first layer equal tokens do), or, where all
layers compete, an entry of the layer is within 0.05% of the limit. Beyond that float32 and float64 choose alike. kvpress runs its own presses: ExpectedAttention from the prompt's queries and from fitted
statistics, KVzap with both surrogates (top-k, and below a threshold by DMSPress), FastKVzip's gates, DuoAttention's
heads, Q-Filters, KVzip without a chat template, KVCompose. Written for torch 2.11, transformers 5.23, kvpress 0.5.5.
"""

import hashlib
import json
import pathlib
import sys

import numpy as np
import torch
from dropping_methods import TEXTS, digests
from kvpress import (DMSPress, DuoAttentionPress, ExpectedAttentionPress, KVComposePress, KVzapPress, KVzipPress,
                     QFilterPress)
from kvpress.presses.expected_attention_with_stats import ExpectedAttentionStatsPress
from kvpress.presses.fastkvzip_press import FastKVzipGate, FastKVzipPress
from kvpress.presses.kvzap_press import KVzapConfig, KVzapModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

KEEP, TOKENS, CHUNK, WINDOW = [0.75, 0.5, 0.25], 200, 90, 16
THRESHOLDS = {"linear": [-8.0, -7.0, -6.0], "mlp": [-7.0, -6.0, -5.0]}
INSTRUCTIONS = ["\n\nRepeat the previous context exactly.",
                "\n\nRepeat the part of the previous context exactly, starting with"]


class Prompt:
    def __init__(self, model, ids):
        self.model, self.ids = model, torch.tensor([ids])
        self.seen = [None] * len(model.model.layers)

        def remember(module, args, kwargs, output):
            self.seen[module.layer_idx] = (module, kwargs["hidden_states"], kwargs)

        hooks = [layer.self_attn.register_forward_hook(remember, with_kwargs=True) for layer in model.model.layers]
        self.cache = DynamicCache()
        model.model(input_ids=self.ids, past_key_values=self.cache)
        for hook in hooks:
            hook.remove()
        for layer in model.model.layers:
            layer.self_attn.rotary_emb = model.model.rotary_emb

    def scores(self, press):
        """[layers, kv_heads, n]"""
        return torch.stack([press.score(module, hidden, layer.keys, layer.values, None, kwargs)[0]
                            for (module, hidden, kwargs), layer in zip(self.seen, self.cache.layers)])


def lists(dropped):
    """[layers, kv_heads, n] bool -> kept positions."""
    return [[(~head).nonzero().flatten().tolist() for head in layer] for layer in dropped]


def uniform(scores, keep):
    n = scores.shape[-1]
    drop = n - int(n * keep)
    dropped = torch.zeros_like(scores, dtype=torch.bool)
    kept = lists(dropped.scatter_(-1, scores.topk(drop, dim=-1, largest=False).indices, True))
    ordered = scores.sort(dim=-1).values
    close = ordered[..., drop] - ordered[..., drop - 1] <= 1e-6 * (ordered[..., -1] - ordered[..., 0])
    return [[None] if doubt.any() else layer for layer, doubt in zip(kept, close)]


def global_limit(kept, scores, keep):
    """Without the layers that have an entry at the limit that all layers share."""
    scores = scores.flatten(1)
    limit = scores.flatten().sort().values[int(scores.numel() * (1 - keep))]
    close = (scores - limit).abs() < 5e-4 * limit
    return [[None] if doubt.any() else layer for layer, doubt in zip(kept, close)]


class Chosen(KVComposePress):
    """Changes no cache, and remembers what was chosen by which scores."""

    def compress_cache(self, model):
        self.kept = [[mask.nonzero().flatten().tolist() for mask in heads] for heads in self.important_mask_per_kv_head]
        self.ordered = self.scores.sort(dim=-1, descending=True).values
        self.worth = self.composite_scores_per_layer if self.structured else self.composite_scores_per_head


def kvcompose(prompt, keep, structured):
    press = Chosen(compression_ratio=1 - keep, structured=structured)
    with press(prompt.model):
        prompt.model(prompt.ids, past_key_values=DynamicCache())
    for layer, rows in enumerate(press.kept):
        for scores, row in zip(press.ordered[layer], rows):
            if 0 < len(row) < len(scores) and scores[len(row) - 1] - scores[len(row)] <= 1e-6 * (scores[0] - scores[-1]):
                press.kept[layer] = [None]
    return global_limit(press.kept, press.worth, keep)


def masked(model, shape):
    dropped = torch.zeros(shape, dtype=torch.bool)
    for layer in model.model.layers:
        if layer.self_attn.masked_key_indices is not None:
            _, heads, positions = layer.self_attn.masked_key_indices
            dropped[layer.self_attn.layer_idx, heads, positions] = True
            layer.self_attn.masked_key_indices = None
    return lists(dropped)


def fitted(folder, dtype):
    """The project's weights in kvpress's modules."""
    load = lambda name: {key: value.to(dtype) for key, value in load_file(folder / f"{name}.safetensors").items()}
    found = {}
    for kind in ("linear", "mlp"):
        weights = load(f"kvzap-{kind}")
        inner = None if kind == "linear" else weights["layers.0.0.bias"].shape[0]
        layers = 1 + max(int(name.split(".")[1]) for name in weights)
        last = weights["layers.0.weight" if kind == "linear" else "layers.0.2.weight"]
        width = weights["layers.0.weight" if kind == "linear" else "layers.0.0.weight"].shape[1]
        surrogate = KVzapModel(KVzapConfig(input_dim=width, output_dim=last.shape[0], n_modules=layers,
                                           hidden_dim=inner)).to(dtype).eval()
        surrogate.load_state_dict(weights)
        found[kind] = KVzapPress(model_type=kind)
        found[kind].kvzap_model = surrogate
    weights = load("expected_attention")
    found["statistics"] = ExpectedAttentionStatsPress()
    found["statistics"].mu, found["statistics"].cov = weights["query_mean"], weights["query_cov"]
    weights = load("fast_kvzip")
    found["gates"] = []
    for layer in range(1 + max(int(name.split(".")[1]) for name in weights)):
        own = {name.split(".", 2)[2]: value for name, value in weights.items() if name.startswith(f"layers.{layer}.")}
        dim, heads = own["q_norm.weight"].shape[0], own["b"].shape[0]
        gate = FastKVzipGate(layer, own["q_proj.weight"].shape[1], heads, own["b"].shape[2], dtype, dim,
                             own["k_base"].shape[2]).eval().to(dtype)
        gate.load_state_dict(own)
        found["gates"].append(gate)
    weights = load("qfilter")
    found["filters"] = QFilterPress()
    found["filters"].q_filters = torch.stack([weights[f"layers.{layer}.filter"] for layer in range(len(weights))])
    found["heads"] = load_file(folder / "duo_attention.safetensors")["full_attention_heads"].numpy()
    return found


def cases(prompt, found, tokenizer):
    model, n = prompt.model, prompt.ids.shape[1]
    shape = (len(prompt.seen), prompt.cache.layers[0].keys.shape[1], n)
    for keep in KEEP:
        yield {"name": "expected_attention", "keep": keep}, uniform(prompt.scores(ExpectedAttentionPress()), keep)
        yield ({"name": "expected_attention", "statistics": "fitted", "keep": keep},
               uniform(prompt.scores(found["statistics"]), keep))
        for kind in ("linear", "mlp"):
            yield {"name": "kvzap", "kind": kind, "window": 0, "keep": keep}, uniform(prompt.scores(found[kind]), keep)
        press = FastKVzipPress(compression_ratio=1 - keep)
        press.gates, press.score_val = found["gates"], [None] * shape[0]
        for module, hidden, _ in prompt.seen:
            press._score_fast(module, hidden)
        press.compress_post(model)
        yield {"name": "fast_kvzip", "keep": keep}, global_limit(masked(model, shape), press.score_val, keep)
        press = DuoAttentionPress(head_compression_ratio=keep)
        press.sink_size, press.recent_size = 8, 16
        press.streaming_mask = torch.zeros(shape[:2], dtype=bool)
        lowest = np.argsort(found["heads"], axis=None, kind="stable")[:round(found["heads"].size * keep)]
        press.streaming_mask[np.unravel_index(lowest, found["heads"].shape)] = True
        for layer, (module, _, _) in enumerate(prompt.seen):
            held = prompt.cache.layers[layer]
            press.compress(module, None, held.keys, held.values, None, {})
        yield {"name": "duo_attention", "form": "kvpress", "sinks": 8, "recent": 16, "sparsity": keep}, masked(model, shape)
        press = KVzipPress(compression_ratio=1 - keep, chunk_size=CHUNK)
        again = DynamicCache()
        model.model(input_ids=prompt.ids, past_key_values=again)
        press._context_ids, press._cache, press.prefix_length = prompt.ids, again, 0
        press._suffix_ids = torch.zeros(1, 0, dtype=torch.long)
        press._perform_kvzip_compression(model, tokenizer)
        yield ({"name": "kvzip", "form": "kvpress", "chunk": CHUNK, "keep": keep},
               global_limit(masked(model, shape), press.score_val, keep))
        yield {"name": "qfilter", "keep": keep}, uniform(prompt.scores(found["filters"]), keep)
        yield {"name": "kvcompose", "keep": keep}, kvcompose(prompt, keep, structured=True)
        yield {"name": "kvcompose", "budget_rule": {"name": "global"}, "keep": keep}, kvcompose(prompt, keep, structured=False)
    for kind, thresholds in THRESHOLDS.items():
        scores = prompt.scores(found[kind])
        for threshold in thresholds:
            for module, _, _ in prompt.seen:
                module.masked_key_indices = None
            press = DMSPress(found[kind], threshold=threshold, sliding_window_size=WINDOW)
            for module, hidden, kwargs in prompt.seen:
                press.forward_hook(module, [], {**kwargs, "past_key_values": prompt.cache,
                                                "cache_position": torch.arange(n), "hidden_states": hidden}, [None])
            yield ({"name": "kvzap", "kind": kind, "threshold": threshold, "window": WINDOW},
                   masked(model, shape))


@torch.no_grad()
def main():
    path, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32,
                                                 attn_implementation="sdpa").eval()
    found = fitted(folder, torch.float32)
    prompts = []
    for text in TEXTS:
        ids = tokenizer(text * 7, add_special_tokens=False).input_ids[:TOKENS]
        for layer in model.model.layers:
            layer.self_attn.masked_key_indices = None
        made = cases(Prompt(model, ids), found, tokenizer)
        prompts.append({"tokens": ids, "cases": [{"spec": spec, "layers": digests(kept)} for spec, kept in made]})
    json.dump({"model": path.name, "prompts": prompts, "after_user": [],
               "instructions": [tokenizer.encode(text, add_special_tokens=False) for text in INSTRUCTIONS]},
              sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
