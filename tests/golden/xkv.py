"""Caches that xKV makes and logits after it, by its authors' code, for tests/methods/compression/xkv_test.cpp.

    git clone https://github.com/abdelfattah-lab/xKV     # written for commit bfe5d72
    pip install torch transformers pyyaml
    python tests/golden/xkv.py xKV

Writes xkv.json. The model is the random one of tests/support/tiny_model.h in float32. The authors' FakeLayerMergingCache
takes each layer's keys before rotation and its values, decomposes groups of layers and rotates the restored keys. It is
run as it is, over lists of keys and values in place of the library's cache, which has changed since, and without waiting
for a device. A case names settings and holds some of each layer's keys and values, and the logits after the forced tokens,
which the library computes over that cache.
Written for torch 2.11, transformers 5.2.
"""

import json
import math
import pathlib
import sys

import torch
import transformers.cache_utils
from authors_code import module_of
from tiny_model import tiny_model
from transformers.cache_utils import DynamicCache

TOKENS, WIDTH = 100, 64  # keys of a layer, all heads together


class Lists:
    """Keys and values of each layer, as the cache that the authors wrote for held them."""

    def __init__(self):
        self.key_cache, self.value_cache = [], []

    def update(self, key, value, layer):
        assert layer == len(self.key_cache)
        self.key_cache.append(key)
        self.value_cache.append(value)

    def __getitem__(self, layer):
        return self.key_cache[layer], self.value_cache[layer]


def authors(root):
    configurations = module_of(root / "xKV/configurations.py", stubs=["loguru"])
    sys.modules["xKV.configurations"] = configurations
    whole, transformers.cache_utils.DynamicCache = transformers.cache_utils.DynamicCache, Lists
    cache = module_of(root / "xKV/customized_cache/fake_layer_merge_dynamic_cache.py",
                      edits=[("from ..configurations", "from xKV.configurations"), ("torch.cuda.synchronize()", ""),
                             ("torch.cuda.empty_cache()", "")])
    transformers.cache_utils.DynamicCache = whole
    return configurations, cache.FakeLayerMergingCache


def projected(model, ids):
    """Keys before rotation and values of each layer, and the rotation."""
    sides = [[], []]
    hooks = [projection.register_forward_hook(lambda m, i, out, to=to: to.append(out.view(1, TOKENS, 2, 32).transpose(1, 2)))
             for layer in model.model.layers
             for projection, to in zip((layer.self_attn.k_proj, layer.self_attn.v_proj), sides)]
    with torch.no_grad():
        model(torch.tensor([ids]))
        rotation = model.model.rotary_emb(sides[0][0], torch.arange(TOKENS)[None])
    for hook in hooks:
        hook.remove()
    return *sides, rotation


def logits_after(model, keys, values, forced):
    cache = DynamicCache()
    for layer in range(len(keys)):
        cache.update(keys[layer], values[layer], layer)
    for step, token in enumerate(forced):
        with torch.no_grad():
            out = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True,
                        position_ids=torch.tensor([[TOKENS + step]]))
    return [round(x, 5) for x in out.logits[0, -1].tolist()]


def main():
    configurations, cache_type = authors(pathlib.Path(sys.argv[1]))
    model, prompts = tiny_model(), []
    for seed in range(5):
        torch.manual_seed(200 + seed)
        ids = torch.randperm(128).tolist()
        forced, (keys, values, (cos, sin)), cases = ids[100:104], projected(model, ids[:TOKENS]), []
        for group, key_share, value_share in [(4, 0.125, 0.1875), (2, 0.25, 0.5), (1, 0.5, 0.25), (3, 0.5, 0.75)]:
            cache = cache_type(configurations.generate_consecutive_xKV_config(
                start_layer=0, end_layer=len(keys) - 1, num_layers=len(keys), group_size=group))
            for layers in cache.merge_setup.layer_groups:
                layers.rank_k = math.floor(key_share * WIDTH * len(layers.layers) + 0.5)
                layers.rank_v = math.floor(value_share * WIDTH * len(layers.layers) + 0.5)
            for layer in range(len(keys)):
                cache.update(keys[layer], values[layer], layer, mode="prefill", cos=cos, sin=sin)
            some = lambda side: [[round(x, 5) for x in one.flatten()[::97].tolist()] for one in side]
            cases.append({"spec": {"name": "xkv", "group": group, "key_share": key_share, "value_share": value_share},
                          "keys": some(cache.key_cache), "values": some(cache.value_cache),
                          "logits": logits_after(model, cache.key_cache, cache.value_cache, forced)})
        prompts.append({"tokens": ids[:TOKENS], "forced": forced, "cases": cases})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"made_by": "abdelfattah-lab/xKV bfe5d72", "prompts": prompts}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
