"""Caches that EigenAttention makes and logits after it, by its authors' code, for
tests/methods/compression/eigenattention_test.cpp.

    git clone https://github.com/UtkarshSaxena1/EigenAttn     # written for commit 8bd0d3f
    pip install torch transformers scipy
    python tests/golden/eigenattention.py EigenAttn

Writes eigenattention.json. The model is the random one of tests/support/tiny_model.h in float32. Directions are those of
the authors' generate_basis_vectors functions for keys and values of calibration tokens, called as their
decompose_llama_layer does; projections are those of their LlamaEigenAttention, whose errors are measured on the last 64
queries of each text. A layer's threshold goes down as in their eigen_attn.py, with the error of attention's output in
place of the layer's. The prompt is computed by the model as it is, as in palu.py.
Written for torch 2.11, transformers 5.2.
"""

import json
import pathlib
import sys
import types

import torch
from authors_code import module_of
from palu import DIM, HEADS, Inputs, case
from tiny_model import tiny_model

QUERIES, LEAST, STEP = 64, 0.45, 0.02


class Layer:
    """A layer's directions and its attention at any threshold."""

    def __init__(self, model, number, utilities, attention, texts):
        self.model, self.attention, self.texts = model, attention, texts
        self.original = model.model.layers[number].self_attn
        rows = torch.cat(texts)
        keys, values = self.original.k_proj(rows[None])[0], self.original.v_proj(rows[None])[0]
        self.keys, self.key_sizes = utilities.generate_basis_vectors_per_layer(keys, 1.0, HEADS, None, number)
        self.values, self.value_sizes = utilities.generate_basis_vectors_per_head(values, 1.0, HEADS, None, number)

    def ranks(self, threshold):
        key = HEADS * (torch.cumsum(self.key_sizes, dim=0) < threshold).sum()
        value = HEADS * torch.amax((torch.cumsum(self.value_sizes, dim=1) < threshold).sum(1))
        return int(key), int(value)

    def low_rank(self, ranks):
        config = types.SimpleNamespace(**self.model.config.to_dict() | {"pretraining_tp": 1, "rope_theta": None})
        made = self.attention(self.keys, ranks[0], self.values, ranks[1], self.original, config, 0).eval()
        made.rotary_emb = self.model.model.rotary_emb
        return made

    def error(self, ranks):
        made, changed, size = self.low_rank(ranks), 0, 0
        for x in self.texts:
            places = torch.arange(len(x))[None]
            hidden = torch.full((len(x), len(x)), -torch.inf).triu(1)[None, None]
            exact = self.original(x[None], self.model.model.rotary_emb(x[None], places), hidden)[0][0, -QUERIES:]
            found = made(x[None], attention_mask=hidden, position_ids=places)[0][0, -QUERIES:]
            changed, size = changed + (exact - found).square().sum(), size + exact.square().sum()
        return float((changed / size).sqrt())

    def errors(self):
        """Of thresholds from 1 down, as long as ranks are above the least."""
        found = []
        while min(self.ranks(1 - STEP * len(found))) > LEAST * HEADS * DIM:
            found.append(self.error(self.ranks(1 - STEP * len(found))))
        return found

    def chosen(self, budget):
        threshold, error, ranks, most = 1.0, 0.0, (HEADS * DIM,) * 2, HEADS * DIM
        while error < budget and min(ranks) > LEAST * most:
            ranks = self.ranks(threshold)
            error = self.error(ranks)
            threshold -= STEP
        return self.ranks(threshold + 2 * STEP)

    def modules(self, ranks):
        """Functions of the inputs that give keys before rotation and values, as the cache has them."""
        made, (key_rank, value_rank) = self.low_rank(ranks), (rank // HEADS for rank in ranks)
        split = lambda rows, rank: rows.view(1, -1, HEADS, rank)
        up = torch.stack([basis[:, :value_rank] for basis in self.values])
        return (lambda x: made.k_proj_up(split(made.k_proj_low(x), key_rank)).flatten(2),
                lambda x: torch.einsum("bnhr,hdr->bnhd", split(made.v_proj_low(x), value_rank), up).flatten(2))


def main():
    root = pathlib.Path(sys.argv[1])
    utilities = module_of(root / "decompose/eigen_attn_utils.py")
    attention = module_of(root / "models/decompose_modules.py", edits=[
        ("from transformers.models.mpt.configuration_mpt import *", "from transformers import LlamaConfig, MptConfig"),
        ("from transformers.models.llama.modeling_llama import *",
         "from transformers.cache_utils import Cache\n"
         "from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, repeat_kv"),
        ("        self.head_dim = self.hidden_size // self.num_heads\n        self.num_key_value_heads",
         "        self.head_dim = config.head_dim\n        self.num_key_value_heads"),
        ("        if (self.head_dim * self.num_heads) != self.hidden_size:\n", "        if False:\n"),
        ("        self._init_rope()\n\n    def _init_rope", "    def _init_rope")]).LlamaEigenAttention
    model = tiny_model()
    seen = Inputs(model)
    torch.manual_seed(400)
    texts = [torch.randint(128, (n,)).tolist() for n in (200, 150)]
    with torch.no_grad():
        inputs = []
        for text in texts:
            model(torch.tensor([text]))
            inputs.append(seen.take())
        layers = [Layer(model, i, utilities, attention, [x[i] for x in inputs]) for i in range(len(inputs[0]))]
        errors = [[round(x, 6) for x in layer.errors()] for layer in layers]
        chosen = {budget: [layer.chosen(budget) for layer in layers] for budget in (0, 0.5, 0.7, 0.9)}
        seen.take()
        prompts = []
        for seed in range(5):
            torch.manual_seed(401 + seed)
            ids = torch.randperm(128).tolist()
            forced, cases = ids[100:104], []
            for budget, ranks in chosen.items():
                modules = [layer.modules(own) for layer, own in zip(layers, ranks)]
                cases.append({"spec": {"name": "eigenattention", "error_budget": budget}, "ranks": ranks}
                             | case(model, seen, modules, ids[:100], forced))
            prompts.append({"tokens": ids[:100], "forced": forced, "cases": cases})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"made_by": "UtkarshSaxena1/EigenAttn 8bd0d3f", "texts": texts, "errors": errors,
                                "prompts": prompts}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
