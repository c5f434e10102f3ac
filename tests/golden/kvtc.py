"""KVTC's transform, bits and numbers, restated in float64, for tests/methods/compression/kvtc_test.cpp.

    pip install numpy
    python tests/golden/kvtc.py

Writes kvtc.json. There is no code by the authors; this is section 3 of arXiv:2511.01815 with the choices that the
method's page names: runs of 1 (a number in float16), 16, 64 components, widths of 8, 4 and 2 bits that never rise, a
float16 shift and scale for each token and run, components left out at the end. Rows are draws of harness/core/random.h
along a few directions: 2 layers of 16 channels, 64 calibration rows, whose principal directions numpy finds, and 6
others that are coded. Which runs is found by trying all. The file holds the directions (rounded to float32), what each
run costs in error, and for every ratio the runs and the restored rows, null in rows that have a quotient within 1e-3
of the middle between two codes. Written for numpy 2.4.
"""

import functools
import json
import pathlib

import numpy as np
from random_stream import uniform

WIDTH, FITTED, CODED = 32, 64, 6
SIZES, BITS = (1, 16, 64, 256, 1024), (8, 4, 2)


def drawn(purpose, *shape):
    return (2 * uniform(1, purpose, int(np.prod(shape))) - 1).reshape(shape)


def rows(side, count):
    basis, mean = drawn(f"kvtc basis {side}", 10, WIDTH), drawn(f"kvtc mean {side}", WIDTH)
    along = drawn(f"kvtc along {side}{count}", count, 10) / np.arange(1, 11)
    return 3 * mean + along @ basis + 0.05 * drawn(f"kvtc noise {side}{count}", count, WIDTH)


def coded(x, bits):
    """One token's numbers of a run as they come back, and whether a code is doubtful."""
    if len(x) == 1:
        return x.astype(np.float16).astype(float), False
    levels = 2**bits - 1
    shift = float(np.float16(np.float32(x.min())))
    scale = float(np.float16(np.float32((x.max() - x.min()) / levels)))
    quotient = (x - shift) / scale
    doubtful = (np.abs(quotient - np.floor(quotient) - 0.5) < 1e-3).any()
    return shift + scale * np.clip(np.round(quotient), 0, levels), doubtful


def run_error(numbers, first, size, bits):
    return sum(np.square(coded(z[first: first + size], bits)[0] - z[first: first + size]).sum() for z in numbers) / len(numbers)


def best_runs(error, variance, budget):
    """The cheapest of all sequences of (first, size, bits); bits 16 are single numbers."""

    @functools.cache
    def best(first, left, width):
        found = (variance[first:].sum(), ())
        for bits in (16, *BITS):
            for size in ((1,) if bits == 16 else SIZES[1:]):
                cost = 16 if size == 1 else 32 + size * bits
                begins = size == 1 or first % 16 == 0
                if bits > width or cost > left or not begins or first + size > WIDTH:
                    continue
                rest, runs = best(first + size, left - cost, bits)
                total = error[size, bits, first] + rest
                if total < found[0]:
                    found = (total, ((first, size, bits), *runs))
        return found

    return best(0, budget, 16)[1]


def main():
    tensors, cases, sides = {}, [], {}
    for side in ("keys", "values"):
        fitted = rows(side, FITTED)
        mean = fitted.mean(0).astype(np.float32).astype(float)
        _, sizes, basis = np.linalg.svd(fitted - mean, full_matrices=False)
        basis = basis.astype(np.float32).astype(float)
        numbers = (fitted - mean) @ basis.T
        variance = sizes**2 / FITTED
        error = {(size, bits, first): run_error(numbers, first, size, bits)
                 for size in SIZES for bits in (16, *BITS) for first in range(WIDTH)
                 if first + size <= WIDTH and (bits == 16) == (size == 1)}
        table = [[[error.get((size, 16 if size == 1 else bits, first), 0.0) for first in range(WIDTH)] for bits in BITS]
                 for size in SIZES]
        sides[side] = (mean, basis, variance, error)
        tensors |= {f"{side}.mean": mean.tolist(), f"{side}.basis": basis.tolist(), f"{side}.variance": variance.tolist(),
                    f"{side}.errors": table}
    for ratio in (2, 4, 6, 10):
        case = {"ratio": ratio}
        for side, (mean, basis, variance, error) in sides.items():
            runs = best_runs(error, variance, int(16 * WIDTH / ratio))
            restored = []
            for x in rows(side, CODED).astype(np.float32).astype(float):
                z = basis @ (x - mean)
                back, doubtful = np.zeros(WIDTH), False
                for first, size, bits in runs:
                    back[first: first + size], unsure = coded(z[first: first + size], bits)
                    doubtful = doubtful or unsure
                restored.append(None if doubtful else [float(f"{v:.6g}") for v in mean + back @ basis])
            case[side] = {"runs": runs, "rows": restored}
        cases.append(case)
    digits = lambda x: [digits(v) for v in x] if isinstance(x, list) else float(f"{x:.9g}")
    out = pathlib.Path(__file__).with_suffix(".json")
    out.write_text(json.dumps({"made_by": "numpy " + np.__version__, "rows": {side: digits(
        rows(side, CODED).astype(np.float32).astype(float).tolist()) for side in sides},
        "tensors": {name: digits(value) for name, value in tensors.items()}, "cases": cases}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
