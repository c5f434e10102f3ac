"""Curves of budgets by LU-KV's authors' code, for tests/methods/compression/lukv_test.cpp.

    git clone https://github.com/baidu-baige/LU-KV
    pip install numpy tqdm
    python tests/golden/lukv.py LU-KV

Writes lukv.json: for a text, whose scores and utilities are draws of harness/core/random.h, the shares of each head's
entries that leave when 1, 2, .. 99 of a hundred of all leave, by their compute_optimal_budget_for_pair. A curve is the list
of a head's shares times its entries.
"""

import json
import pathlib
import sys

import numpy as np
from authors_code import module_of
from random_stream import uniform

LAYERS, HEADS, ENTRIES = 3, 2, 60


def main():
    code = module_of(pathlib.Path(sys.argv[1]) / "evaluation/curve_data/step2_compute_curve.py", stubs=["tqdm"])
    draws = lambda name: uniform(1, name, LAYERS * HEADS * ENTRIES).reshape(LAYERS, HEADS, ENTRIES)
    scale = np.arange(1, LAYERS * HEADS + 1).reshape(LAYERS, HEADS, 1)
    scores = draws("scores").astype(np.float32).astype(np.float64)
    utility = (draws("utility") * draws("utility") * scale).astype(np.float32).astype(np.float64)
    cases = []
    for sinks, window in [(4, 1), (0, 0), (4, 32)]:
        shares = code.compute_optimal_budget_for_pair(utility, scores, sinks, window)
        gone = np.rint(shares * ENTRIES).astype(int)
        cases.append({"sinks": sinks, "window": window, "gone": gone.transpose(1, 2, 0).tolist()})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"made_by": "baidu-baige/LU-KV", "entries": ENTRIES, "cases": cases},
                               separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
