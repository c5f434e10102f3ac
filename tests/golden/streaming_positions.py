"""Logits under positions inside the cache, for tests/methods/compression/positions_test.cpp.

    pip install torch transformers kvpress
    python tests/golden/streaming_positions.py > tests/golden/streaming_positions.json

Two rules, on the random model of tests/support/tiny_model.h. StreamingLLM's (mit-han-lab/streaming-llm,
streaming_llm/pos_shift): keys are cached before rotation and rotated in every step by their index in the cache, the query
by the last one. It is restated here in float64 over the library's weights, since the authors' code patches a library of
2023: the prompt is read with full attention, then `sinks` first and newest entries stay, after the prompt and after every
forced token. kvpress's KeyRerotationPress: after SnapKV's choice keys are turned once to their index among those kept,
and the next token has the position that follows; run by kvpress and transformers in float32. A case holds every eighth
logit of some forced tokens. Written for torch 2.11, transformers 5.23, kvpress 0.5.5.
"""

import json
import sys

import torch
from dropping_methods import Prompt
from tiny_model import tiny_model
from kvpress import KeyRerotationPress, SnapKVPress
from transformers.cache_utils import DynamicCache

KEEP, SINKS, STEPS = [0.75, 0.5, 0.25], 4, 24
SHOWN = (0, 7, 15, 23)


def turned(x, positions, theta=10000.0):
    """x [heads, n, head_dim] rotated, half-split."""
    half = x.shape[-1] // 2
    angles = positions.double()[:, None] * theta ** (-torch.arange(half).double() / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def norm(x, weight):
    return weight * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


class Streaming:
    """Raw keys and values of each layer, [kv_heads, n, head_dim]."""

    def __init__(self, model):
        self.model = model
        self.keys = [None] * len(model.model.layers)
        self.values = [None] * len(model.model.layers)

    def feed(self, tokens):
        """Logits after the last of `tokens`, which are new."""
        x = self.model.model.embed_tokens.weight[torch.tensor(tokens)]
        for i, layer in enumerate(self.model.model.layers):
            hidden = norm(x, layer.input_layernorm.weight)
            project = lambda m: m(hidden).view(len(tokens), -1, 32).transpose(0, 1)
            keys, values = project(layer.self_attn.k_proj), project(layer.self_attn.v_proj)
            if self.keys[i] is not None:
                keys = torch.cat([self.keys[i], keys], 1)
                values = torch.cat([self.values[i], values], 1)
            self.keys[i], self.values[i] = keys, values
            n = keys.shape[1]
            own = torch.arange(n - len(tokens), n)
            q = turned(project(layer.self_attn.q_proj), own).view(2, 2, len(tokens), 32)
            scores = q @ turned(keys, torch.arange(n))[:, None].transpose(-1, -2) / 32**0.5
            scores = scores.masked_fill(torch.arange(n)[None, :] > own[:, None], -torch.inf)
            out = (scores.softmax(-1) @ values[:, None]).permute(2, 0, 1, 3).reshape(len(tokens), -1)
            x = x + layer.self_attn.o_proj(out)
            hidden = norm(x, layer.post_attention_layernorm.weight)
            x = x + layer.mlp(hidden)
        return norm(x[-1], self.model.model.norm.weight) @ self.model.model.embed_tokens.weight.T

    def evict(self, budget):
        for store in (self.keys, self.values):
            for i, rows in enumerate(store):
                if rows.shape[1] > budget:
                    store[i] = torch.cat([rows[:, :SINKS], rows[:, rows.shape[1] - (budget - SINKS):]], 1)


def shown(logits):
    return [round(x, 5) for x in logits[::8].tolist()]


def streaming(model, tokens, forced, keep):
    cache = Streaming(model)
    cache.feed(tokens)
    budget = int(len(tokens) * keep)
    steps = {}
    for step, token in enumerate(forced):
        cache.evict(budget)
        logits = cache.feed([token])
        if step in SHOWN:
            steps[step] = shown(logits)
    return steps


def rerotated(prompt, forced, keep):
    press = KeyRerotationPress(SnapKVPress(window_size=8, kernel_size=5, compression_ratio=1 - keep))
    cache = DynamicCache()
    for layer, (module, kwargs) in enumerate(prompt.calls):
        module.rotary_emb = prompt.model.model.rotary_emb
        keys, values = press.compress(module, kwargs["hidden_states"], prompt.keys[layer], prompt.values[layer], None,
                                      kwargs)
        cache.update(keys, values, layer)
    steps = {}
    for step, token in enumerate(forced):
        out = prompt.model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)
        if step in SHOWN:
            steps[step] = shown(out.logits[0, -1])
    return steps


@torch.no_grad()
def main():
    model = tiny_model()
    prompts = []
    for seed in range(5):
        torch.manual_seed(100 + seed)
        ids = torch.randperm(128).tolist()
        prompts.append({"tokens": ids[:100], "forced": ids[100:100 + STEPS], "cases": []})
        prompt = Prompt(model, ids[:100])
        for keep in KEEP:
            spec = {"name": "snapkv", "window": 8, "kernel": 5, "positions": "renumber", "keep": keep}
            prompts[-1]["cases"].append({"spec": spec, "steps": rerotated(prompt, prompts[-1]["forced"], keep)})
    model = model.double()
    for prompt in prompts:
        for keep in KEEP:
            spec = {"name": "streaming_llm", "sinks": SINKS, "positions": "renumber", "keep": keep}
            prompt["cases"].append({"spec": spec, "steps": streaming(model, prompt["tokens"], prompt["forced"], keep)})
    json.dump({"prompts": prompts}, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
