"""Values after kvpress's MergingPress, for tests/methods/compression/merging_test.cpp.

    pip install torch transformers kvpress
    python tests/golden/merging_kvpress.py > tests/golden/merging.json

The model is the random one of tests/support/tiny_model.h in float32. A case names settings of a dropping method and holds,
for each layer and kv head, the positions kept and for each of them the sum over channels c = 1 .. head_dim of
value[c] c / head_dim. Written for torch 2.11, transformers 5.23, kvpress 0.5.5.
"""

import json
import sys

import torch
from dropping_methods import Prompt
from kvpress import KeyDiffPress, KnormPress, MergingPress
from tiny_model import tiny_model

CASES = [({"name": "knorm", "keep": 0.5, "merge": True}, MergingPress(KnormPress(0.5))),
         ({"name": "knorm", "keep": 0.25, "merge": True, "merge_similarity": 0.3},
          MergingPress(KnormPress(0.75), similarity_threshold=0.3)),
         ({"name": "keydiff", "keep": 0.5, "merge": True, "merge_share": 0.4},
          MergingPress(KeyDiffPress(0.5), merge_fraction=0.4))]


def merged(prompt, press):
    layers = []
    for layer, (module, kwargs) in enumerate(prompt.calls):
        keys = prompt.keys[layer]
        with torch.no_grad():
            out, values = press.compress(module, kwargs["hidden_states"], keys, prompt.values[layer], None, kwargs)
        positions = (out[0].unsqueeze(2) == keys[0].unsqueeze(1)).all(-1).int().argmax(-1)
        order = positions.argsort(-1)
        d = values.shape[-1]
        sums = (values[0].double() @ (torch.arange(1, d + 1).double() / d)).gather(1, order)
        layers.append({"kept": positions.gather(1, order).tolist(),
                       "sums": [[round(value, 6) for value in row] for row in sums.tolist()]})
    return layers


def main():
    model, prompts = tiny_model(), []
    for seed in range(2):
        torch.manual_seed(100 + seed)
        ids = torch.randperm(128)[:80].tolist()
        prompt = Prompt(model, ids)
        for layer in model.model.layers:
            layer.self_attn.config._attn_implementation = "sdpa"
        prompts.append({"tokens": ids,
                        "cases": [{"spec": spec, "layers": merged(prompt, press)} for spec, press in CASES]})
        for layer in model.model.layers:
            layer.self_attn.config._attn_implementation = "eager"
    json.dump({"prompts": prompts}, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
