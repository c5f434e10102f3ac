"""Blocks of MXFP4 and their numbers by the gguf package, for tests/harness/model/checkpoint_test.cpp.

    pip install gguf numpy
    python tests/golden/model/mxfp4.py > tests/golden/model/mxfp4.json

Written for gguf 0.19. Exponents are the smallest that the type has, those around 1, and one that is large.
"""

import json
import sys

import gguf
import numpy as np

EXPONENTS = [0, 1, 2, 120, 126, 127, 128, 200]


def main():
    draw = np.random.default_rng(20261126)
    blocks = draw.integers(0, 256, (len(EXPONENTS), 17), dtype=np.uint8)
    blocks[:, 0] = EXPONENTS
    values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.MXFP4)
    json.dump({"made_by": "gguf 0.19.0", "blocks": blocks.tobytes().hex(), "values": [float(x) for x in values.ravel()]},
              sys.stdout)
    print()


main()
