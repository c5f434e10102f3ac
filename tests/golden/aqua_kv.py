"""Caches that AQUA-KV makes and logits after it, by its authors' code, for tests/methods/compression/aqua_kv_test.cpp.

    git clone https://github.com/goodevening13/aquakv     # written for commit e744183
    pip install torch transformers tqdm
    python tests/golden/aqua_kv.py aquakv

Writes aqua_kv.json. The model is the random one of tests/support/tiny_model.h in float32. `weights` are some numbers of
the predictors that the authors' fit_linear_regression and HiggsQuantizer find on the tokens of calibration texts, layer by
layer as in their train_predictors.py; beyond the second layer roundings of codes decide them. A prompt's cache behind the
first 4 tokens goes through their SingleChunkQuantizedCacheWithPredictors with predictors that are draws (the test makes
the same). Their quantiser is run with lengths in half precision and the rest in single, with a Hadamard transform that
needs no device, and on the grids of methods/compression/aqua_kv.cpp, made here as there and held against theirs by their
error.
Written for torch 2.11, transformers 5.2.
"""

import json
import math
import pathlib
import sys
import types

import torch
from authors_code import module_of, package_of
from palu import Inputs
from random_stream import uniform
from tiny_model import tiny_model
from transformers.cache_utils import DynamicCache

TOKENS, SINKS, HEADS, DIM, DAMPING = 100, 4, 2, 32, 1e-3


def hadamard(x, scale=1.0):
    matrix = torch.ones(1, 1)
    while len(matrix) < x.shape[-1]:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return x @ matrix * scale


def normal_points(count):
    order = torch.arange(count, dtype=torch.float64) + 0.5
    length, angle = (-2 * (1 - order / count).log()).sqrt(), order * math.pi * (3 - math.sqrt(5))
    return torch.stack([length * angle.cos(), length * angle.sin()], 1).float()


def normal_grid(bits):
    x, grid = normal_points(1 << 14), 0.9 * normal_points(4**bits)
    for _ in range(100):
        nearest = (2 * x @ grid.T - grid.square().sum(1)).argmax(1)
        counts = torch.zeros(len(grid), 1).index_add(0, nearest, torch.ones(len(x), 1))
        grid = torch.where(counts > 0, torch.zeros_like(grid).index_add(0, nearest, x) / counts.clamp_min(1), grid)
    return grid


def error(grid):
    x = torch.randn(1 << 17, 2, generator=torch.Generator().manual_seed(0))
    return torch.cdist(x, grid).amin(1).square().mean().item()


def authors(root):
    sys.modules["fast_hadamard_transform"] = types.SimpleNamespace(hadamard_transform=hadamard)
    package_of(root, "aquakv")
    from aquakv import edenn, linear_utils
    for bits in (2, 3, 4):
        ours, theirs = normal_grid(bits), edenn.GRIDS[2][4**bits].float()
        assert error(ours) < 1.07 * error(theirs), (bits, error(ours), error(theirs))
        edenn.GRIDS[2][4**bits] = ours
    edenn.get_grid.cache_clear()
    quantizers = module_of(root / "aquakv/quantizers.py", stubs=["optimum", "optimum.quanto"], edits=[
        ("from .edenn import", "from aquakv.edenn import"),
        ("x = (x * scales.unsqueeze(dim=2)).half()", "x = x * scales.unsqueeze(dim=2)"),
        ("            scales\n        )", "            scales.half().float()\n        )")])
    sys.modules["aquakv.quantizers"] = quantizers
    caches = module_of(root / "aquakv/cache_utils.py", edits=[("(transformers.cache_utils.Cache):", ":")])
    return quantizers.HiggsQuantizer, linear_utils.fit_linear_regression, caches


def predictors(keys, values, quantizers, regression):
    """Of calibration rows [layers][rows, width]: a linear map for keys and one for values of each layer but the first."""
    made = {}, {}
    for layer, exact in enumerate(zip(keys, values)):
        quantizer, back = quantizers[layer > 0], []
        for side in range(2):
            predicted = 0
            if layer > 0:
                inputs = below[0] if side == 0 else torch.cat([back[0], below[1]], -1)
                weight, bias = regression(inputs.double(), exact[side].double(), reg_rate=DAMPING)
                made[side][layer] = torch.nn.Linear(*weight.shape[::-1])
                made[side][layer].weight.data, made[side][layer].bias.data = weight.float(), bias.float()
                predicted = made[side][layer](inputs)
            back.append(predicted + quantizer.quantize_dequantize(exact[side] - predicted))
        below = back
    return made


def drawn(name, inputs):
    made = torch.nn.Linear(inputs, HEADS * DIM)
    both = torch.tensor(2 * uniform(7, name, HEADS * DIM * (inputs + 1)) - 1).float().view(HEADS * DIM, inputs + 1) / 8
    made.weight.data, made.bias.data = both[:, :-1].contiguous(), both[:, -1].contiguous()
    return made


def coded(cache, entries, rotation, config, caches):
    """Keys, rotated, and values of each layer as they come back: of [1, heads, n, dim] each."""
    cos, sin = rotation
    for layer, (keys, values) in enumerate(entries):
        cache.update(keys, values, layer, {"cos": cos, "sin": sin})
    return caches.get_past_key_values(cache, config, 1, keys.device, keys.dtype)


def main():
    root = pathlib.Path(sys.argv[1])
    quantizer_type, regression, caches = authors(root)
    model = tiny_model()
    seen = Inputs(model)
    torch.manual_seed(500)
    texts = [torch.randint(128, (n,)).tolist() for n in (240, 200)]
    with torch.no_grad():
        for text in texts:
            model(torch.tensor([text]))
        inputs = seen.take()
        projections = [(layer.self_attn.k_proj, layer.self_attn.v_proj) for layer in model.model.layers]
        keys, values = ([pair[side](x) for pair, x in zip(projections, inputs)] for side in range(2))
        seen.take()
        coders = {bits: [quantizer_type(HEADS * DIM, 2, 4**own, HEADS * DIM) for own in (first, bits)]
                  for bits, first in [(2, 4), (3, 2)]}
        weights = [torch.cat([own[1].weight, own[1].bias[:, None]], 1).flatten()[::97].tolist()
                   for own in predictors(keys, values, coders[2], regression)]
        made = [{layer: drawn(f"{side}.{layer}", inputs) for layer in (1, 2)}
                for side, inputs in [("keys", HEADS * DIM), ("values", 2 * HEADS * DIM)]]
        prompts = []
        for seed in range(5):
            torch.manual_seed(541 + seed)  # of prompts none of whose pairs lies half-way between two points
            ids = torch.randperm(128).tolist()
            forced, cases = ids[TOKENS:TOKENS + 4], []
            full = DynamicCache()
            model(torch.tensor([ids[:TOKENS]]), past_key_values=full, use_cache=True)
            behind = [(layer.keys[:, :, SINKS:], layer.values[:, :, SINKS:]) for layer in full.layers]
            rotation = model.model.rotary_emb(behind[0][0], torch.arange(SINKS, TOKENS)[None])
            for (bits, pair), first in zip(coders.items(), (4, 2)):
                back = coded(caches.SingleChunkQuantizedCacheWithPredictors(
                    quantizer=pair[1], first_layer_quantizer=pair[0], key_predictors=made[0], value_predictors=made[1]),
                    behind, rotation, model.config, caches)
                cache = DynamicCache()
                for layer, entries in enumerate(back):
                    before = full.layers[layer]
                    cache.update(torch.cat([before.keys[:, :, :SINKS], entries[0]], 2),
                                 torch.cat([before.values[:, :, :SINKS], entries[1]], 2), layer)
                for step, token in enumerate(forced):
                    out = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True,
                                position_ids=torch.tensor([[TOKENS + step]]))
                some = lambda side: [[round(x, 5) for x in one[side].flatten()[::97].tolist()] for one in back]
                cases.append({"spec": {"name": "aqua_kv", "bits": bits, "first_bits": first, "buffer": 64},
                              "keys": some(0), "values": some(1),
                              "logits": [round(x, 5) for x in out.logits[0, -1].tolist()]})
            prompts.append({"tokens": ids[:TOKENS], "forced": forced, "cases": cases})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"made_by": "goodevening13/aquakv e744183", "texts": texts, "weights": weights,
                                "grids": {bits: normal_grid(bits).tolist() for bits in (2, 3, 4)}, "prompts": prompts},
                               separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
