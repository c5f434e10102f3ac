"""KIVI restated in numpy, for comparison with that in C++, and codecs that lose nothing or misbehave."""

from typing import Annotated, Literal

import numpy as np

import kvarena


class PyKivi(kvarena.Codec):
    """Asymmetric quantisation, keys per channel along tokens, values per token along channels."""

    def __init__(
        self,
        bits: Annotated[int, kvarena.Range(1, 8), "of a code"] = 2,
        group_size: int = 32,
        block: Annotated[int, "tokens that leave the 16-bit tail together"] = 32,
    ):
        self.code_bits, self.group_size, self.block = bits, group_size, block
        self.bits = bits + 32 / group_size

    def quantise(self, rows, side, entries):
        axis = 1 if side == "keys" else 2
        shape = list(rows.shape)
        shape[axis : axis + 1] = [rows.shape[axis] // self.group_size, self.group_size]
        groups = rows.reshape(shape)
        low = groups.min(axis + 1, keepdims=True)
        step = (groups.max(axis + 1, keepdims=True) - low) / np.float32(2**self.code_bits - 1)
        low, step = (x.astype(np.float16).astype(np.float32) for x in (low, step))
        codes = np.round((groups - low) / np.where(step == 0, 1, step)).clip(0, 2**self.code_bits - 1)
        return codes, low, step

    def dequantise(self, codes, side, entries):
        codes, low, step = codes
        return (codes * step + low).reshape(entries.kv_heads, entries.n, entries.head_dim)


class Exact(kvarena.Codec):
    """Loses nothing, at bits that nothing has."""

    bits = 8
    residual = 3

    def quantise(self, rows, side, entries):
        assert entries.positions.shape == rows.shape[:2] and len(entries.rotation) == entries.head_dim // 2
        return rows

    def dequantise(self, codes, side, entries):
        return codes


class BadCodec(kvarena.Codec):
    """Does one thing wrong."""

    def __init__(self, how: Literal["shape", "nan", "raise", "bits"] = "shape"):
        self.how = how
        self.bits = 0 if how == "bits" else 4

    def quantise(self, rows, side, entries):
        return rows / undefined if self.how == "raise" else rows  # noqa: F821

    def dequantise(self, codes, side, entries):
        return codes[1:] if self.how == "shape" else codes * np.float32("nan")
