"""Compact caches by the authors' attention matching, for tests/methods/compression/attention_matching_test.cpp.

    pip install torch
    git clone https://github.com/adamzweiger/compaction
    python tests/golden/attention_matching.py FOLDER_OF_CLONES

Writes attention_matching.json. Keys, values and queries are those of weighted_retrieval.py, and the prompt's queries are
drawn likewise. A case names settings, the entries that each kv head keeps, their biases, and the attention of a step's
query heads to these and the step's own entry.

Run as it is: HighestAttentionKeysCompaction (2e59cc8) with the settings of AM-HighestAttnKeys-basic, a kv head at a time
on its query heads' queries, whose random vector is ours. Protected entries stand beside what it makes of the others, as
in its per_layer_head.py. Written for torch 2.11.
"""

import importlib
import json
import math
import pathlib
import sys

import numpy as np
import torch
from authors_code import package_of
from random_stream import uniform
from weighted_retrieval import DIM, GROUP, KV_HEADS, Q_HEADS, case, entries, floats


def algorithm(folder):
    for name in ("compaction", "compaction.algorithms"):
        package_of(folder / "compaction", name)
    return importlib.import_module("compaction.algorithms.highest_attention_keys").HighestAttentionKeysCompaction


def normal(seed, head, count):
    draws = uniform(seed, f"attention_matching 0 {head}", 2 * count)
    return torch.tensor((np.sqrt(-2 * np.log1p(-draws[0::2])) * np.cos(2 * np.pi * draws[1::2])).astype(np.float32))


def compact(code, n, tokens, sinks, window, lower, upper, steps, seed):
    keys, values, q = entries(n, seed)
    prompt = 3 * floats("prompt queries", seed, n, Q_HEADS, DIM).transpose(0, 1)[:, sinks:]
    kept, biases, outs = [], [], []
    for head in range(KV_HEADS):
        own_keys, own_values = keys[0, head], values[0, head]
        torch.randn = lambda count, **_: normal(0, head, count)
        method = code(score_method="rms", nnls_iters=steps, nnls_lower_bound=math.exp(lower), nnls_upper_bound=math.exp(upper))
        few_keys, bias, few_values, places = method.compute_compacted_cache(
            own_keys[sinks:n - window], own_values[sinks:n - window], prompt[head * GROUP:(head + 1) * GROUP].reshape(-1, DIM),
            tokens - sinks - window)
        order = torch.tensor(places).argsort()
        whole = [*range(sinks), *range(n - window, n + 1)]
        kept.append(sorted(whole[:-1] + [sinks + place for place in places]))
        biases.append([round(x, 5) for x in [0.0] * sinks + bias[order].tolist() + [0.0] * window])
        all_keys, all_values = torch.cat([few_keys, own_keys[whole]]), torch.cat([few_values, own_values[whole]])
        scores = q[0, head * GROUP:(head + 1) * GROUP, 0] @ all_keys.T / math.sqrt(DIM)
        outs.append(torch.softmax(scores + torch.cat([bias, torch.zeros(len(whole))]), -1) @ all_values)
    spec = {"name": "attention_matching", "tokens": tokens, "protect_sinks": sinks, "protect_window": window, "lower": lower,
            "upper": upper, "steps": steps}
    return case(spec, n, seed, torch.cat(outs)) | {"entries": kept, "biases": biases}


def main():
    code = algorithm(pathlib.Path(sys.argv[1]))
    cases = [compact(code, *settings) for settings in [(100, 20, 0, 0, -3, 3, 2, 1), (150, 50, 0, 0, -3, 3, 2, 2),
                                                       (120, 40, 4, 8, -3, 3, 5, 3), (80, 10, 0, 0, -1, 2, 0, 4)]]
    biases = [bias for one in cases for head in one["biases"] for bias in head]
    print("biases from", min(biases), "to", max(biases))
    path = pathlib.Path(__file__).with_suffix(".json")
    data = {"made_by": "tests/golden/attention_matching.py, torch " + torch.__version__, "cases": cases}
    path.write_text(json.dumps(data, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
