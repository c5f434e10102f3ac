"""Keys and values that codecs of whole tiles of tokens decode, by their authors' code, for
tests/methods/compression/{kvarn,oscar,polarquant}_test.cpp.

    pip install numpy torch
    git clone https://github.com/sztlink/KVarN && git clone https://github.com/ericshwu/PolarQuant
    git clone https://github.com/ZunhaiSu/OScaR-KV-Quant
    python tests/golden/tile_quantizers.py FOLDER_OF_CLONES

Writes tile_quantizers/NAME.json. Keys and values are drawn by harness/core/random.h's rule, so the test holds the same:
128 tokens of 2 heads of 32 channels, float32, some tokens and channels larger than others (entries()). Executed as they
are, on a CPU in float32: KVarN's variance_normalize_batched and kvarn_store_tile_{k,v}_batch_from_sinkhorn (002d388 of a
copy of huawei-csl/KVarN); OScaR's hadamard_rotation, _norm_factor_extract and KVQuantizer (d2109f5); PolarQuant's
quantize_and_pack_nbit (7fc65d8), whose values are KIVI's of one group a head, here restated. Our scales are rounded to 16 bits before codes are
chosen, so rows [head, token] are left out in which a number lies within `margin` of the border between two codes; of
the others the first 10 of each head are written. Written for torch 2.11.0, numpy 2.4.6.
"""

import ast
import math
import pathlib
import sys
import types

import numpy as np
import torch
from authors_code import module_of
from by_method import write
from random_stream import uniform

TOKENS, HEADS, DIM, ROWS = 128, 2, 32, 10


def entries(what):
    """[heads, tokens, dim]."""
    x = (2 * uniform(1, what, TOKENS * HEADS * DIM) - 1).astype(np.float32).reshape(TOKENS, HEADS, DIM)
    token, channel = np.arange(TOKENS)[:, None, None], np.arange(DIM)
    x = x * np.where(token % 11 == 3, np.float32(5), np.float32(1)) * np.where(channel % 7 == 2, np.float32(4), np.float32(1))
    return torch.tensor(x + np.where(channel % 5 == 1, np.float32(2), np.float32(0))).transpose(0, 1).contiguous()


def hadamard(n):
    h = torch.ones(1, 1)
    while len(h) < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return h / math.sqrt(n)


def near(quotient, border, margin):
    """Where the fraction of a quotient is within `margin` of `border`."""
    distance = (quotient - border) - torch.round(quotient - border)
    return distance.abs() < margin


def between_parts(x, low, scale):
    """Near a border of two parts; the ends of the range belong to the outermost codes."""
    inner = (x != x.amin(2, keepdim=True)) & (x != x.amax(2, keepdim=True))
    return near((x - low) / scale, 0, 0.02) & inner


def rows(decoded, unsure):
    """The first rows of each head without an unsure number."""
    kept = []
    for h in range(HEADS):
        clean = [t for t in range(TOKENS) if not bool(unsure[h, t].any())][:ROWS]
        assert len(clean) == ROWS, len(clean)
        kept += [[h, t, [float(f"{v:.6g}") for v in decoded[h, t].tolist()]] for t in clean]
    return kept


def kvarn(folder, bits, value_bits, group, iterations):
    path = folder / "KVarN/vllm"
    sinkhorn = module_of(path / "model_executor/layers/quantization/kvarn/sinkhorn.py")
    imported = "from vllm.model_executor.layers.quantization.kvarn.sinkhorn import (\n    variance_normalize,\n)\n"
    store = module_of(path / "v1/attention/ops/kvarn_store.py", edits=((imported, ""),))
    result = {"method": {"name": "kvarn", "bits": bits, "value_bits": value_bits, "group": group, "sinks": 0,
                         "iterations": iterations}}
    turn = hadamard(DIM)
    for side, b in (("keys", bits), ("values", value_bits)):
        tiles = (entries(side) @ turn).reshape(-1, group, DIM)
        tiles = tiles.transpose(1, 2).contiguous() if side == "keys" else tiles
        balanced, column, row = sinkhorn.variance_normalize_batched(tiles, iterations)
        make = store.kvarn_store_tile_k_batch_from_sinkhorn if side == "keys" else store.kvarn_store_tile_v_batch_from_sinkhorn
        record = make(balanced, column.squeeze(1), row.squeeze(2), b)
        packed = record["q_packed_uint8"].int()
        codes = torch.stack([(packed >> (j * b)) & (2**b - 1) for j in range(8 // b)], -1).reshape(tiles.shape).float()
        names = ("s_col_K", "zp_K", "s_row_K") if side == "keys" else ("s_row_V", "zp_V", "s_col_V")
        scale, zero, other = (record[name].float() for name in names)
        back = (codes * scale.unsqueeze(2) + zero.unsqueeze(2)) * other.unsqueeze(1)
        low, high = balanced.amin(2, keepdim=True), balanced.amax(2, keepdim=True)
        unsure = near((balanced - low) / ((high - low) / (2**b - 1)), 0.5, 0.012 if b > 2 else 0.005)
        if side == "keys":
            back, unsure = back.transpose(1, 2), unsure.transpose(1, 2)
        result[side] = rows((back @ turn).reshape(HEADS, TOKENS, DIM), unsure.reshape(HEADS, TOKENS, DIM))
    return result


def oscar(folder, bits, group, residual):
    utils = module_of(folder / "OScaR-KV-Quant/kv_cache_compression/quarot_utils.py")
    result = {"method": {"name": "oscar", "bits": bits, "group_size": group, "residual_length": residual}}
    for side in ("keys", "values"):
        x = utils.hadamard_rotation(entries(side).unsqueeze(0))
        norm = torch.ones(1)
        if side == "keys":
            x, norm = utils._norm_factor_extract(x, "norm_rsqrt")
        quantizer = utils.KVQuantizer(bits=bits, groupsize=group, sym=False, per_channel=side == "keys")
        back = quantizer.quantize_dequantize(x)
        grouped = x.reshape(1, HEADS, TOKENS // group, group, DIM) if side == "keys" else x.reshape(1, HEADS, TOKENS, DIM // group, group)
        axis = 3 if side == "keys" else 4
        low, high = grouped.amin(axis, keepdim=True), grouped.amax(axis, keepdim=True)
        scale = (high - low) / (2**bits - 1)
        unsure = near(grouped / scale, 0.5, 0.005) | near(-low / scale, 0.5, 0.005)
        result[side] = rows(utils.hadamard_rotation(back * norm)[0], unsure.reshape(HEADS, TOKENS, DIM))
    return result


def polarquant(folder, bits, value_bits, group):
    source = (folder / "PolarQuant/models/modeling_llama_polar.py").read_text()
    owner = next(c for c in ast.parse(source).body if getattr(c, "name", "") == "LlamaPolarGroupAttention")
    function = next(f for f in owner.body if getattr(f, "name", "") == "quantize_and_pack_nbit")
    scope = {"torch": torch}
    exec(ast.unparse(function), scope)
    settings = types.SimpleNamespace(group_size=group, rbits=bits, tbits=bits)
    keys, values = entries("keys"), entries("values")
    codes, radius_scale, radius_low, angle_scale, angle_low = scope["quantize_and_pack_nbit"](settings, keys.unsqueeze(0))
    radius = ((codes >> bits).float() + 0.5) * radius_scale + radius_low
    angle = ((codes & (2**bits - 1)).float() + 0.5) * angle_scale + angle_low
    back = torch.cat([radius * angle.cos(), radius * angle.sin()], -1).reshape(HEADS, TOKENS, DIM)
    pairs = keys.view(HEADS, TOKENS // group, group, 2, DIM // 2)
    phi = torch.atan2(pairs[..., 1, :], pairs[..., 0, :])
    phi = torch.where(phi < 0, phi + 2 * math.pi, phi)
    unsure = between_parts(phi, angle_low[0], angle_scale[0])
    unsure |= between_parts(pairs.norm(dim=-2), radius_low[0], radius_scale[0])
    low, high = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
    scale = (high - low) / (2**value_bits - 1)
    decoded = torch.round((values - low) / scale) * scale + low
    return {"method": {"name": "polarquant", "bits": bits, "value_bits": value_bits, "group_size": group},
            "keys": rows(back, unsure.repeat(1, 1, 1, 2).reshape(HEADS, TOKENS, DIM)),
            "values": rows(decoded, near((values - low) / scale, 0.5, 0.012))}


def main():
    folder = pathlib.Path(sys.argv[1])
    made_by = "the authors' code on torch 2.11.0"
    write(__file__, "kvarn", {"made_by": made_by, "cases": [kvarn(folder, 4, 2, 64, 8), kvarn(folder, 4, 4, 128, 16)]})
    write(__file__, "oscar", {"made_by": made_by, "cases": [oscar(folder, 2, 32, 128), oscar(folder, 4, 16, 64)]})
    write(__file__, "polarquant", {"made_by": made_by, "cases": [polarquant(folder, 4, 4, 128), polarquant(folder, 3, 2, 64)]})


if __name__ == "__main__":
    main()
