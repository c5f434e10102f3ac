"""Channels that LeanK keeps and logits under it, by its authors' code, for tests/methods/compression/leank_test.cpp.

    git clone https://github.com/microsoft/MInference     # written for commit fb56c91
    pip install torch transformers
    python tests/golden/leank.py MInference

Writes leank.json, and leank_masks.pth as torch.save() has it. The model is the random one of tests/support/tiny_model.h in
float32, and so are the factors. A case names settings and holds the channels that each layer and kv head keeps, as bits of
a hexadecimal number, and the logits after the forced tokens. Masks are those of the authors' sparsify_scaling_factors;
entries are kept, pruned and masked by their LeanKCache and mask_channels_query, attention over them is written out here.
A step attends before the cache takes its entry, so a run is pruned behind the step that completes it; the authors' prune it
in front of that step. Their cache trims values before it takes the pruned run's from them, and loses these: the run's are
taken from what was there before. Heads are reordered by their numbers of channels as in their patch_leank.
Written for torch 2.11, transformers 5.2.
"""

import json
import math
import pathlib
import sys
import types

import torch
from authors_code import module_of
from random_stream import uniform
from tiny_model import tiny_model
from transformers.cache_utils import DynamicCache
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

TOKENS, LAYERS, HEADS, DIM, GROUP = 100, 3, 2, 32, 2


def factors():
    """Uneven between layers and heads, so that some keep all channels and some none."""
    power = torch.tensor([[0.3, 1.5], [1.0, 2.5], [0.7, 6.0]])[..., None]
    values = torch.tensor(uniform(1, "factors", LAYERS * HEADS * DIM)).view(LAYERS, HEADS, DIM) ** power
    return values.float().mul(1e4).round().div(1e4)


class Layer:
    """A layer's masks with heads in the order of their widths."""

    def __init__(self, mask, step):
        widths = mask.sum(-1).int()
        self.order = widths.argsort(stable=True)
        self.mask = mask[self.order]
        self.counts, self.boundaries = [0], [int((widths == 0).sum())]
        for width in range(step, DIM + 1, step):
            if (widths == width).any():
                self.counts.append(width)
                self.boundaries.append(self.boundaries[-1] + int((widths == width).sum()))

    def attend(self, code, cache, index, q, k, v):
        """Of a step's queries [q_heads, dim] to what the cache holds and to its own entry [kv_heads, dim]."""
        out = torch.zeros(HEADS, GROUP, DIM)
        q = q.view(HEADS, GROUP, DIM)[self.order]
        masked, first = {}, self.boundaries[0]
        for end, width in zip(self.boundaries[1:], self.counts[1:]):
            rows = code.mask_channels_query(q[first:end].reshape(1, -1, DIM), self.mask[first:end], width)[0]
            for head in range(first, end):
                masked[head] = (rows.view(end - first, GROUP, width)[head - first], width, head - first)
            first = end
        for head in range(HEADS):
            keys = torch.cat([cache.key_cache_full[index][0, head], k[self.order[head]][None]])
            values = torch.cat([cache.value_cache_full[index][0, head], v[self.order[head]][None]])
            scores = q[head] @ keys.t()
            if head in masked:
                rows, width, row = masked[head]
                scores = torch.cat([scores, rows @ cache.key_cache_mid[index][width][0, row].t()], -1)
                values = torch.cat([values, cache.value_cache_mid[index][width][0, row]])
            out[self.order[head]] = (scores / math.sqrt(DIM)).softmax(-1) @ values
        return out.flatten()

    def update(self, cache, index, k, v):
        """k, v [kv_heads, n, dim]"""
        cache.update(k[self.order][None], v[self.order][None], index, self.mask, self.boundaries, self.counts, None)


@torch.no_grad()
def logits_after(model, code, layers, spec, ids, forced):
    sizes = {"sink_size": spec["sinks"], "recent_size": spec["recent"], "accumu_size": spec["block"]}
    cache = code.LeanKCache(types.SimpleNamespace(attn_kwargs=sizes))
    full = DynamicCache()
    model(torch.tensor([ids]), past_key_values=full, use_cache=True)
    for index, layer in enumerate(layers):
        layer.update(cache, index, full.layers[index].keys[0], full.layers[index].values[0])
    for step, token in enumerate(forced):
        h = model.model.embed_tokens(torch.tensor([[token]]))
        cos, sin = model.model.rotary_emb(h, torch.tensor([[len(ids) + step]]))
        for index, layer in enumerate(model.model.layers):
            attention, x = layer.self_attn, layer.input_layernorm(h)
            q, k, v = (p(x).view(1, 1, -1, DIM).transpose(1, 2)
                       for p in (attention.q_proj, attention.k_proj, attention.v_proj))
            q, k = apply_rotary_pos_emb(q, k, cos, sin)
            out = layers[index].attend(code, cache, index, q[0, :, 0], k[0, :, 0], v[0, :, 0])
            layers[index].update(cache, index, k[0], v[0])
            h = h + attention.o_proj(out[None, None])
            h = h + layer.mlp(layer.post_attention_layernorm(h))
    return [round(x, 5) for x in model.lm_head(model.model.norm(h))[0, -1].tolist()]


def main():
    root = pathlib.Path(sys.argv[1])
    values, begin = "self.value_cache_full[layer_idx]", " = torch.cat(\n                        ("
    indent, part = "\n" + 20 * " ", "[\n" + 36 * " " + ":, l:r"
    code = module_of(root / "minference/modules/leank.py", stubs=["tilelang", "tilelang.language"], edits=[
        (values + begin, f"whole = {values}{indent}{values}{begin}"), (values + part, "whole" + part)])
    sparsify = module_of(root / "LeanK/leank/utils.py",
                         stubs=["matplotlib", "matplotlib.pyplot", "accelerate", "accelerate.utils"]).sparsify_scaling_factors
    model, weights = tiny_model(), factors()
    masks = torch.tensor(sparsify(list(weights), 0.6, 16)).float()
    torch.save(masks, pathlib.Path(__file__).with_name("leank_masks.pth"))
    prompts = []
    for seed in range(5):
        torch.manual_seed(400 + seed)
        ids, cases = torch.randperm(128).tolist(), []
        for pruned, step, sinks, recent, block, published in [(0.7, 8, 4, 16, 8, False), (0.4, 4, 4, 9, 5, False),
                                                              (0.85, 16, 2, 20, 8, False), (0.6, 16, 4, 16, 8, True)]:
            spec = {"name": "leank", "sinks": sinks, "recent": recent, "block": block}
            if not published:
                spec |= {"pruned": pruned, "round_to": step}
            mask = masks if published else torch.tensor(sparsify(list(weights), pruned, step)).float()
            layers = [Layer(own, step) for own in mask]
            channels = [[f"{sum(1 << c for c in head.nonzero().flatten().tolist()):x}" for head in own] for own in mask]
            cases.append({"spec": spec, "masks": published, "channels": channels,
                          "logits": logits_after(model, code, layers, spec, ids[:TOKENS], ids[TOKENS:])})
        prompts.append({"tokens": ids[:TOKENS], "forced": ids[TOKENS:], "cases": cases})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"made_by": "microsoft/MInference fb56c91", "factors": weights.flatten(1).tolist(),
                                "prompts": prompts}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
