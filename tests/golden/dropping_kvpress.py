"""Selections of dropping methods by implementations that are not ours, for tests/methods/compression/golden_test.cpp.

    pip install torch transformers kvpress
    python tests/golden/dropping_kvpress.py > tests/golden/dropping_kvpress.json

A tiny random Llama with grouped queries (transformers, eager attention, float32) reads a few prompts. For each layer the
file holds the rotated keys, the rotated queries of the last `window` tokens, the attention sums over all queries, and the
kept positions: of kvpress's SnapKVPress, StreamingLLMPress and KnormPress, and of H2O's rule applied in float64 to the
library's own attention matrix (kvpress has no H2O; its observed_attention divides by visibility and protects nothing).
Written for torch 2.11, transformers 5.23, kvpress 0.5.5.
"""

import json
import sys

import torch
from kvpress import KnormPress, SnapKVPress, StreamingLLMPress
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

TOKENS, WINDOW, KERNEL, SINKS = 80, 8, 5, 4
KEEP = [0.75, 0.5, 0.25]
CONFIG = LlamaConfig(vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=16, max_position_embeddings=256, attn_implementation="eager")


def listed(tensor, digits=5):
    return json.loads(json.dumps(tensor.double().tolist()), parse_float=lambda text: round(float(text), digits))


def kept_by(press, keep, context):
    """kvpress's own compress(), with the indices read back from the keys it keeps."""
    press.compression_ratio = 1 - keep
    module, hidden, keys, values, kwargs = context
    marked = torch.arange(keys.shape[2], dtype=keys.dtype)[None, None, :, None].expand_as(values)
    _, kept = press.compress(module, hidden, keys, marked, None, kwargs)
    return kept[0, :, :, 0].long().sort(dim=-1).values.tolist()


def kept_by_h2o(attention, keep):
    """attention [q_heads, n, n]; budget split in equal halves, the recent half rounded down."""
    n = attention.shape[-1]
    budget = int(n * keep)
    recent = budget // 2
    sums = attention.double().sum(1).view(2, 2, n).sum(1)  # over queries, then over the group
    kept = []
    for row in sums:
        heavy = row[: n - recent].topk(budget - recent).indices.tolist()
        kept.append(sorted(heavy + list(range(n - recent, n))))
    return kept


def main():
    torch.manual_seed(5)
    model = LlamaForCausalLM(CONFIG).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # far from uniform, yet no spike that pooling turns into a tie
            if "q_proj" in name or "k_proj" in name:
                parameter.mul_(10)
    cases = []
    for seed in range(5):
        torch.manual_seed(100 + seed)
        ids = torch.randperm(97)[None, :TOKENS]  # no token twice: equal keys would tie, and ties are nobody's rule
        contexts = []

        def remember(module, args, kwargs, output):
            contexts.append((module, kwargs["hidden_states"], kwargs))

        hooks = [layer.self_attn.register_forward_hook(remember, with_kwargs=True) for layer in model.model.layers]
        with torch.no_grad():
            out = model(ids, output_attentions=True, use_cache=True)
        for hook in hooks:
            hook.remove()
        layers = []
        for index, (module, hidden, kwargs) in enumerate(contexts):
            cache = out.past_key_values.layers[index]
            cos, sin = kwargs["position_embeddings"]
            queries = module.q_proj(hidden).view(1, TOKENS, 4, 16).transpose(1, 2)
            queries, _ = apply_rotary_pos_emb(queries, queries, cos, sin)
            context = (module, hidden, cache.keys, cache.values, kwargs)
            attention = out.attentions[index][0]
            with torch.no_grad():
                layers.append({
                    "keys": listed(cache.keys[0].transpose(0, 1)),
                    "window_queries": listed(queries[0, :, -WINDOW:].transpose(0, 1)),
                    "attention_sums": listed(attention.double().sum(1)),
                    "kept": {
                        str(keep): {
                            "snapkv": kept_by(SnapKVPress(window_size=WINDOW, kernel_size=KERNEL), keep, context),
                            "streaming_llm": kept_by(StreamingLLMPress(n_sink=SINKS), keep, context),
                            "knorm": kept_by(KnormPress(), keep, context),
                            "h2o": kept_by_h2o(attention, keep),
                        } for keep in KEEP
                    },
                })
        cases.append(layers if seed == 0 else [layers[seed % 2]])  # both layers once: a small file
    json.dump({"tokens": TOKENS, "window": WINDOW, "kernel": KERNEL, "sinks": SINKS, "cases": cases}, sys.stdout,
              separators=(",", ":"))
    print()


main()
