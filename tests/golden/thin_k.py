"""Channels that ThinK prunes and logits after it, by kvpress's own press, for tests/methods/compression/thin_k_test.cpp.

    pip install torch transformers kvpress
    python tests/golden/thin_k.py

Writes thin_k.json. The model is the random one of tests/support/tiny_model.h in float32. A case names settings and holds
the channels that each layer and kv head keeps, as bits of a hexadecimal number, and the logits after the forced tokens,
which the library computes over a cache whose pruned channels are 0. Run as they are: ThinKPress, over all of the prompt
or over what SnapKVPress keeps. Where the newest entries stay whole, the press's choice is written over the others alone,
as the authors' key_pruner_query_driven does (SalesforceAIResearch/ThinK d200577).
Written for torch 2.15, transformers 5.2, kvpress 0.5.5.
"""

import json
import pathlib

import torch
from dropping_methods import SNAP, Prompt, indices
from kvpress import SnapKVPress, ThinKPress
from tiny_model import tiny_model
from transformers.cache_utils import DynamicCache

DIM = 32


def pruned(prompt, ratio, window, recent, keep):
    """Keys and values of each layer after the presses, and the channels that are left of each head's keys."""
    press, first = ThinKPress(key_channel_compression_ratio=ratio, window_size=window), SnapKVPress(window_size=8, kernel_size=5)
    first.compression_ratio = 1 - keep
    entries, channels = [], []
    for layer, (module, kwargs) in enumerate(prompt.calls):
        keys, values = prompt.keys[layer].clone(), prompt.values[layer].clone()
        with torch.no_grad():
            if keep < 1:
                kept, _ = first.compress(module, kwargs["hidden_states"], keys, values, None, kwargs)
                order = indices(kept, keys)[None, :, :, None].expand(-1, -1, -1, DIM)  # by position, the newest last
                keys, values = keys.gather(2, order), values.gather(2, order)
            whole = keys.clone()
            keys, values = press.compress(module, kwargs["hidden_states"], keys, values, None, kwargs)
        kept = (keys[0] != 0).any(1)  # [kv_heads, dim]
        if recent:
            keys[:, :, -recent:] = whole[:, :, -recent:]
        entries.append((keys, values))
        channels.append([f"{sum(1 << c for c in row.nonzero().flatten().tolist()):x}" for row in kept])
    return entries, channels


def logits_after(prompt, entries, forced):
    cache = DynamicCache()
    for layer, (keys, values) in enumerate(entries):
        cache.update(keys, values, layer)
    for step, token in enumerate(forced):
        with torch.no_grad():
            out = prompt.model(torch.tensor([[token]]), past_key_values=cache, use_cache=True,
                               position_ids=torch.tensor([[prompt.n + step]]))
    return [round(x, 5) for x in out.logits[0, -1].tolist()]


def main():
    model, prompts = tiny_model(), []
    for seed in range(5):
        torch.manual_seed(100 + seed)
        ids = torch.randperm(128).tolist()
        forced, prompt, cases = ids[100:104], Prompt(model, ids[:100]), []
        for ratio, window, recent, keep in [(0.25, 32, 0, 1), (0.5, 32, 0, 1), (0.4, 16, 32, 1), (0.75, 32, 20, 0.5)]:
            spec = {"name": "thin_k", "pruned": ratio, "window": window, "recent": recent}
            if keep < 1:
                spec["over"] = SNAP | {"keep": keep}
            entries, channels = pruned(prompt, ratio, window, recent, keep)
            cases.append({"spec": spec, "channels": channels, "logits": logits_after(prompt, entries, forced)})
        prompts.append({"tokens": ids[:100], "forced": forced, "cases": cases})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"made_by": "kvpress 0.5.5", "prompts": prompts}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
