"""Caches that Palu makes and logits after it, by its authors' code, for tests/methods/compression/palu_test.cpp.

    git clone https://github.com/shadowpa0327/Palu     # written for commit bb22666
    pip install torch transformers
    python tests/golden/palu.py Palu

Writes palu.json. The model is the random one of tests/support/tiny_model.h in float32. Ranks are those of the authors'
`uniform` search, rounded by their function; key and value projections are decomposed by their HeadwiseLowRankModule under
the Cholesky factor of the sum of x x^T over the inputs x of calibration tokens, as their decomposition.py has it. A case
names settings and holds some of each layer's keys and values, and the logits after the forced tokens. The prompt is
computed by the model as it is, and a token sees itself as it is; what the cache then holds of it is what the modules give
of its input.
Written for torch 2.11, transformers 5.2.
"""

import json
import pathlib
import sys

import torch
from authors_code import module_of
from tiny_model import tiny_model
from transformers.cache_utils import DynamicCache
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

TOKENS, HEADS, DIM = 100, 2, 32


class Inputs:
    """The inputs of each layer's projections in the passes since the last take()."""

    def __init__(self, model):
        self.model = model
        self.layers = [[] for _ in model.model.layers]
        for to, layer in zip(self.layers, model.model.layers):
            layer.self_attn.k_proj.register_forward_hook(lambda m, i, out, to=to: to.append(i[0][0].detach()))

    def take(self):
        taken = [torch.cat(rows) for rows in self.layers]
        for rows in self.layers:
            rows.clear()
        return taken


def heads(rows):
    return rows.view(1, -1, HEADS, DIM).transpose(1, 2)


def restored(model, modules, inputs, positions):
    """Keys, rotated, and values of each layer, of the tokens with these inputs."""
    entries = []
    for (key, value), rows in zip(modules, inputs):
        keys, values = heads(key(rows[None])), heads(value(rows[None]))
        cos, sin = model.model.rotary_emb(keys, positions[None])
        entries.append((apply_rotary_pos_emb(keys, keys, cos, sin)[0], values))
    return entries


@torch.no_grad()
def case(model, seen, modules, ids, forced):
    model(torch.tensor([ids]))
    entries = restored(model, modules, seen.take(), torch.arange(TOKENS))
    cache = DynamicCache()
    for layer, (keys, values) in enumerate(entries):
        cache.update(keys, values, layer)
    for step, token in enumerate(forced):
        place = torch.tensor([TOKENS + step])
        out = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True, position_ids=place[None])
        for layer, (keys, values) in enumerate(restored(model, modules, seen.take(), place)):
            cache.layers[layer].keys[:, :, -1:], cache.layers[layer].values[:, :, -1:] = keys, values
    some = lambda side: [[round(x, 5) for x in one[side].flatten()[::97].tolist()] for one in entries]
    return {"keys": some(0), "values": some(1), "logits": [round(x, 5) for x in out.logits[0, -1].tolist()]}


def main():
    root = pathlib.Path(sys.argv[1]) / "palu"
    low_rank = module_of(root / "model/modules/svd_linear.py", edits=[
        ("from .quant import Quantizer", ""), ("from .hadamard_utils import apply_hadamard", "")]).HeadwiseLowRankModule
    rounded = module_of(root / "rank_search.py", stubs=["click", "loguru", "tqdm"], edits=[
        ("from .model import AVAILABLE_MODELS", ""), ("from .data_utils import get_calib_data", "")]).rounding_search_result
    model = tiny_model()
    seen = Inputs(model)
    torch.manual_seed(300)
    texts = [torch.randint(128, (n,)).tolist() for n in (200, 150)]
    with torch.no_grad():
        for text in texts:
            model(torch.tensor([text]))
        factors = [torch.linalg.cholesky(rows.double().t() @ rows.double()).float() for rows in seen.take()]
    prompts = []
    for seed in range(5):
        torch.manual_seed(301 + seed)
        ids = torch.randperm(128).tolist()
        forced, cases = ids[TOKENS:TOKENS + 4], []
        for share, group, step in [(0.7, 4, 32), (0.5, 1, 8), (0.25, 2, 8), (0.9, 1, 4)]:
            width = min(group, HEADS) * DIM
            ranks = rounded({"": [width * share] * (HEADS * DIM // width)}, block_size=step)[""]
            modules = []
            for layer, factor in zip(model.model.layers, factors):
                pair = []
                for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj):
                    projection.scaling_diag_matrix = factor
                    pair.append(low_rank.from_linear_whiten(projection, ranks))
                modules.append(pair)
            cases.append({"spec": {"name": "palu", "share": share, "head_group": group, "round_to": step},
                          "rank": ranks[0]} | case(model, seen, modules, ids[:TOKENS], forced))
        prompts.append({"tokens": ids[:TOKENS], "forced": forced, "cases": cases})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"made_by": "shadowpa0327/Palu bb22666", "texts": texts, "prompts": prompts},
                               separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
