"""Merged pairs by KVCache-Factory's MiniCache primitives, for tests/methods/compression/minicache_test.cpp.

    git clone https://github.com/Zefan-Cai/KVCache-Factory     # written for commit c97f9d7
    pip install torch
    python tests/golden/minicache.py KVCache-Factory > tests/golden/minicache.json

pyramidkv/minicache.py runs in float64. The states of both layers are draws of harness/core/random.h, the upper layer's a
mixture of the lower layer's and its own, so that angles vary; a case holds the entries retained of each head and the
restored states of both layers, every third number.
"""

import json
import pathlib
import sys

import torch
from random_stream import uniform

HEADS, TOKENS, DIM = 2, 37, 16


def draw(purpose):
    return torch.tensor(uniform(3, purpose, HEADS * TOKENS * DIM).tolist(), dtype=torch.float64).view(
        1, HEADS, TOKENS, DIM).mul(2).sub(1).float().double()


def main():
    sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "pyramidkv"))
    from minicache import compress_minicache_pair, restore_minicache_pair

    lower = draw("lower")
    upper = (lower * draw("mixture") + 0.5 * draw("upper")).float().double()
    cases = []
    for interpolation in (0.6, 0.25):
        for retained in (0.0, 0.05, 0.3):
            shared, size, below, _, kept, kept_below, indices = compress_minicache_pair(
                upper, lower, interpolation=interpolation, retention_ratio=retained)
            restored, restored_below = restore_minicache_pair(shared, size, below, current_retained=kept,
                                                              previous_retained=kept_below, retained_indices=indices)
            cases.append({"interpolation": interpolation, "retained": retained, "kept": indices[0].tolist(),
                          "lower": [round(x, 7) for x in restored_below.flatten()[::3].tolist()],
                          "upper": [round(x, 7) for x in restored.flatten()[::3].tolist()]})
    json.dump({"heads": HEADS, "tokens": TOKENS, "head_dim": DIM, "cases": cases}, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
