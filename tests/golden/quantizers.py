"""Dequantised keys and values by implementations that are not ours, for tests/methods/compression/*_test.cpp.

    pip install numpy xllamacpp torch torchao
    python tests/golden/quantizers.py

Writes quantizers/rows.json, the entries, and quantizers/NAME.json, what each method makes of them. llama.cpp's types are
its own functions, in the library that xllamacpp brings, fp8 is torch's cast, fp4 torchao's blocks, the rest are the papers' formulas in float64 with
scales and zero points rounded to their stored type. One head, 32 tokens of 32 channels with a few outlier channels;
every number is a bfloat16, so that the cache holds it exactly. Cases are refused in which a quotient lies so near to
the middle between two codes that float32 may round it the other way. Written for numpy 2.4.6, xllamacpp
2026.10.11549, torch 2.11.0, torchao 0.18.0.
"""

import ctypes
import pathlib

import numpy as np
import torch
import xllamacpp
from by_method import write
from torchao.prototype.mx_formats.mx_tensor import MXTensor
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor

SEED = 12
TOKENS, CHECKED, DIM = 32, 16, 32  # decoded rows of the first CHECKED tokens are written


def bf16(x):
    return torch.tensor(np.asarray(x, np.float32)).to(torch.bfloat16).double().numpy()


def f16(x):
    return np.asarray(x, np.float64).astype(np.float16).astype(np.float64)


def rounded(x):
    """numpy's round is half to even; refuses what is nearly half way but not exactly."""
    distance = np.abs(np.abs(x - np.floor(x)) - 0.5)
    assert not np.any((distance > 0) & (distance < 2e-5)), "too close to a tie, choose another seed"
    return np.round(x)


def minimum(x, axis, bits, store, clip=1.0):
    """KIVI, QuaRot: the whole axis is one group."""
    low, high = x.min(axis, keepdims=True) * clip, x.max(axis, keepdims=True) * clip
    scale, zero = store((high - low) / (2**bits - 1)), store(low)
    return rounded(np.clip((x - zero) / scale, 0, 2**bits - 1)) * scale + zero


def midpoint(x, axis, store):
    """SpeCache, eq. 3, with the parenthesis that the text lacks."""
    low, high = x.min(axis, keepdims=True), x.max(axis, keepdims=True)
    scale, zero = store((high - low) / 2), store((3 * low + high) / 4)
    return rounded(np.clip((x - zero) / scale, 0, 1)) * scale + zero


def qserve(x):
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    scale = f16((high - low) / 15)
    zero = f16(-low / scale)
    return (rounded(np.clip(x / scale + zero, 0, 15)) - zero) * scale


def kvtuner(x, bits):
    """Per token: z = round(min / s), code = clamp(round(x / s) - z), decoded (code + z) s."""
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    scale = bf16((high - low) / (2**bits - 1))
    zero = rounded(low / scale)
    return (np.clip(rounded(x / scale) - zero, 0, 2**bits - 1) + zero) * scale


def absmax(x, top, store):
    scale = store(np.abs(x).max(-1, keepdims=True) / top)
    return rounded(np.clip(x / scale, -top, top)) * scale


def hadamard(n):
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h / np.sqrt(n)


def lloyd(bits):
    """Centroids of the optimal quantiser of N(0, 1), by Lloyd's iteration on a fine grid."""
    grid = np.linspace(-8, 8, 400001)
    weight = np.exp(-grid * grid / 2)
    levels = np.linspace(-2, 2, 2**bits)
    for _ in range(3000):
        cell = np.searchsorted((levels[1:] + levels[:-1]) / 2, grid)
        moved = np.bincount(cell, weight * grid) / np.bincount(cell, weight)
        if np.abs(moved - levels).max() < 1e-9:
            break
        levels = moved
    return levels


def turboquant(x, bits, correct):
    y = x @ hadamard(DIM)
    norm = np.linalg.norm(x, axis=-1, keepdims=True)
    levels = lloyd(bits)
    middles, unit = (levels[1:] + levels[:-1]) / 2, y / norm * np.sqrt(DIM)
    assert np.abs(unit[..., None] - middles).min() > 1e-5, "too close to a tie, choose another seed"
    code = np.searchsorted(middles, unit)
    decoded = levels[code]
    scale = norm / np.linalg.norm(decoded, axis=-1, keepdims=True) if correct else norm / np.sqrt(DIM)
    return f16(scale) * decoded @ hadamard(DIM)


def whole_zero(x, bits, clip):
    """RotateKV: z = round(-min / s), with 2^bits - 1 levels (the authors' code has bits^2 - 1, the same at 2 and 4)."""
    low, high = x.min(-1, keepdims=True) * clip, x.max(-1, keepdims=True) * clip
    scale = f16((high - low) / (2**bits - 1))
    zero = rounded(-low / scale)
    return (np.clip(rounded(x / scale) + zero, 0, 2**bits - 1) - zero) * scale


def rotatekv(x, bits, clip):
    """Keys of one head without rotary embedding: channels by summed magnitude, Hadamard, quantise, and back."""
    order = np.argsort(-np.abs(x).sum(0), kind="stable")
    back = whole_zero(x[:, order] @ hadamard(DIM), bits, clip) @ hadamard(DIM)
    keys = np.empty_like(back)
    keys[:, order] = back
    return keys, whole_zero(x @ hadamard(DIM), bits, clip) @ hadamard(DIM)


def normalise(low, high):
    return f16((low + high) / 2), f16((high - low) / 2)


def kvquant(x, bits, share):
    """Even levels in [-1, 1]. Keys: thresholds of each channel, strict; values: thresholds of each token, not strict,
    outliers replaced by the row's lower median before the range is taken."""
    step = 2 / (2**bits - 1)

    def levels(t):
        code = np.clip((t + 1) / step, 0, 2**bits - 1)
        rounded(code)  # no near ties; of an exact one the lower level, as a search for the nearest finds it first
        return np.ceil(code - 0.5) * step - 1

    low, high = np.quantile(x, share / 2, axis=0), np.quantile(x, 1 - share / 2, axis=0)
    centre, radius = normalise(low, high)
    outlier = (x < low) | (x > high)
    keys = np.where(outlier, f16(x), levels(np.where(outlier, 0, (x - centre) / radius)) * radius + centre)
    low, high = np.quantile(x, share / 2, axis=1)[:, None], np.quantile(x, 1 - share / 2, axis=1)[:, None]
    outlier = (x <= low) | (x >= high) if share > 0 else np.zeros_like(x, bool)
    median = np.sort(x, axis=1)[:, (DIM - 1) // 2][:, None]
    inlier = np.where(outlier, median, x)
    centre, radius = normalise(inlier.min(1, keepdims=True), inlier.max(1, keepdims=True))
    values = np.where(outlier, f16(x), levels((inlier - centre) / radius) * radius + centre)
    return keys, values


def gear(x, bits, share):
    """Without the low-rank part: the extremes of each key channel and of each token's values, exactly."""

    def sparse(x, axis):
        each = int(x.shape[axis] * share / 2)
        rank = np.argsort(np.argsort(x, axis=axis, kind="stable"), axis=axis)
        outlier = (rank < each) | (rank >= x.shape[axis] - each)
        plain = np.where(outlier, x.mean(axis, keepdims=True).astype(np.float32), x)
        return np.where(outlier, f16(x), minimum(plain, axis, bits, bf16))

    return sparse(x, 0), sparse(x, 1)


GGML = {"q4_0": 18, "q4_1": 20, "q5_0": 22, "q5_1": 24, "q8_0": 34, "iq4_nl": 18}  # bytes of 32 numbers
LLAMA = ctypes.CDLL(str(next(pathlib.Path(xllamacpp.__file__).parent.glob("*.so"))))


def ggml(x, kind):
    rows = np.ascontiguousarray(x, np.float32)
    blocks, back = np.empty(rows.size // 32 * GGML[kind], np.uint8), np.empty_like(rows)
    address, count = lambda array: ctypes.c_void_p(array.ctypes.data), ctypes.c_int64(rows.size)
    getattr(LLAMA, f"quantize_row_{kind}_ref")(address(rows), address(blocks), count)
    getattr(LLAMA, f"dequantize_row_{kind}")(address(blocks), address(back), count)
    return back


def fp8(x, dtype):
    return torch.tensor(x, dtype=torch.float32).to(dtype).double().numpy()


def mxfp4(x):
    rows = torch.tensor(x, dtype=torch.float32)
    return MXTensor.to_mx(rows, torch.float4_e2m1fn_x2, 32).dequantize(torch.float32).double().numpy()


def nvfp4(x):
    rows = torch.tensor(x, dtype=torch.float32)
    scale = rows.abs().max() / (448 * 6)
    return NVFP4Tensor.to_nvfp4(rows, per_tensor_scale=scale).dequantize(torch.float32).double().numpy()


def main():
    rng = np.random.default_rng(SEED)
    x = bf16(rng.normal(size=(TOKENS, DIM)) * np.where(np.arange(DIM) % 11 == 3, 6, 1) + (np.arange(DIM) % 7 == 2) * 4)
    h = hadamard(DIM)
    kivi = {"name": "kivi", "group_size": 32, "residual_length": 32}
    both = [
        ({"name": "int8"}, "bf16", absmax(x, 127, bf16)),
        ({"name": "fp8"}, "f16", fp8(x, torch.float8_e4m3fn)),
        ({"name": "fp8", "format": "e5m2"}, "f16", fp8(x, torch.float8_e5m2)),
        ({"name": "fp8", "scaling": "head"}, "f16", fp8(x / (abs(x).max() / 448), torch.float8_e4m3fn) * (abs(x).max() / 448)),
        ({"name": "fp4"}, "f16", nvfp4(x)),
        ({"name": "fp4", "format": "mxfp4"}, "f16", mxfp4(x)),
        *(({"name": "ggml_types", "type_k": kind, "type_v": kind}, "f16", ggml(x, kind)) for kind in GGML),
        ({"name": "quarot_kv"}, "f16", minimum(x @ h, -1, 4, f16) @ h),
        ({"name": "quarot_kv", "bits": 3, "clip": 0.9}, "f16", minimum(x @ h, -1, 3, f16, 0.9) @ h),
        ({"name": "qserve_kv4", "smooth_alpha": 0}, "f16", qserve(x)),
        ({"name": "kvtuner", "base": "per_token", "bits": [4]}, "bf16", kvtuner(x, 4)),
        ({"name": "turboquant", "rotation": "hadamard", "bits": 2, "value_bits": 2}, "f16", turboquant(x, 2, True)),
        ({"name": "turboquant", "rotation": "hadamard", "bits": 4, "value_bits": 4, "norm_correction": False}, "f16",
         turboquant(x, 4, False)),
    ]
    cases = [{"method": m, "stored": s, "keys": d, "values": d} for m, s, d in both]
    pairs = [({"name": "rotatekv"}, rotatekv(x, 2, 0.8)), ({"name": "rotatekv", "bits": 4}, rotatekv(x, 4, 1.0)),
             ({"name": "kvquant", "codebook": "uniform", "outliers": 0.05}, kvquant(x, 4, 0.05)),
             ({"name": "gear", "group_size": 32, "buffer": 32, "sparsity": 0.1, "rank_prefill": 0}, gear(x, 4, 0.1))]
    pairs.append(({"name": "turboquant", "rotation": "hadamard", "bits": 8, "value_bits": 4, "value_mode": "uniform"},
                  (fp8(x, torch.float8_e4m3fn), minimum(x, 1, 4, f16))))
    pairs.append(({"name": "ggml_types", "type_k": "q8_0", "type_v": "iq4_nl"}, (ggml(x, "q8_0"), ggml(x, "iq4_nl"))))
    cases += [{"method": m, "stored": "bf16" if m["name"] == "gear" else "f16", "keys": k, "values": v}
              for m, (k, v) in pairs]
    for bits in (2, 4):
        cases.append({"method": kivi | {"bits": bits}, "stored": "bf16", "keys": minimum(x, 0, bits, bf16),
                      "values": minimum(x, 1, bits, bf16)})
    cases.append({"method": kivi | {"bits": 1}, "stored": "bf16", "keys": midpoint(x, 0, bf16),
                  "values": midpoint(x, 1, bf16)})
    for case in cases:
        for side in ("keys", "values"):
            if side == "values" and case["values"] is case["keys"]:
                del case["values"]
                continue
            case[side] = [float(f"{v:.5g}") for v in np.asarray(case[side], np.float64)[:CHECKED].ravel()]
    write(__file__, "rows", {"made_by": "numpy 2.4.6, xllamacpp 2026.10.11549, torch 2.11.0; seed " + str(SEED), "tokens": TOKENS,
                             "head_dim": DIM, "rows": x.ravel().tolist()})
    for name in dict.fromkeys(case["method"]["name"] for case in cases):
        write(__file__, name, {"cases": [case for case in cases if case["method"]["name"] == name]})


if __name__ == "__main__":
    main()
