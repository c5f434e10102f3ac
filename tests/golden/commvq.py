"""Errors of codebooks and caches that CommVQ makes, by its authors' code, for tests/methods/compression/commvq_test.cpp.

    git clone https://github.com/UMass-Embodied-AGI/CommVQ     # written for commit d1f0377
    pip install torch transformers tqdm numpy
    python tests/golden/commvq.py CommVQ

Writes commvq.json. The model is the random one of tests/support/tiny_model.h in float32. `errors` are those that the
authors' quantize_key_cache.py finds on the keys of calibration texts, from the vectors that harness/core/random.h draws in
place of torch, with 16 centres a codebook. A prompt's first block of 128 goes through their KeyCompressor and
ValueCompressor with codebooks and networks that are draws too (the test makes the same), without the noise of their
choice and with lengths in half precision.
Written for torch 2.11, transformers 5.2.
"""

import json
import math
import pathlib
import sys
import types

import torch
from authors_code import module_of
from palu import Inputs
from random_stream import draw, uniform
from tiny_model import tiny_model
from transformers.cache_utils import DynamicCache
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

HEADS, DIM, POINTS, BITS, CODE_BITS, BLOCK = 2, 32, 4, 1, 4, 128
WIDTH, CODEBOOKS = HEADS * DIM, BITS * DIM // CODE_BITS
CHOICES = WIDTH * BITS // 2 * 4
SHAPES = {"norm1.weight": (WIDTH,), "norm1.bias": (WIDTH,), "enc1.weight": (CHOICES, WIDTH), "enc1.bias": (CHOICES,),
          "out.weight": (CHOICES, CHOICES), "out.bias": (CHOICES,), "embedding": (WIDTH * BITS, WIDTH)}


def rearranged(x, pattern, h=None, b=None):
    """The two patterns of einops that the authors' code asks for."""
    return x.reshape(-1, h, x.shape[-1] // h) if pattern.startswith("b s") else x.reshape(b, -1, x.shape[-1])


def drawn(name, shape):
    return torch.tensor(2 * uniform(7, name, math.prod(shape)) - 1).float().view(shape)


def pairs(x):
    """Channels c and c + DIM / 2 of each head side by side, and back."""
    return x.view(*x.shape[:-1], HEADS, 2, DIM // 2).transpose(-1, -2).flatten(-3)


def unpaired(x):
    return x.view(*x.shape[:-1], HEADS, DIM // 2, 2).transpose(-1, -2).flatten(-3)


def errors(em, keys, layer):
    """Squared errors after each codebook, of each head."""
    tensors = pairs(keys)
    norm = tensors.norm(dim=1, keepdim=True)
    tensors, found = tensors / norm, []
    for head in range(HEADS):
        own, scale, after = tensors[:, head * DIM:(head + 1) * DIM], 1.0, []
        for i in range(CODEBOOKS):
            first = (head << 40) + i * POINTS**2
            em.START = torch.tensor([draw(1, f"fit layer {layer}", first + j) * len(keys) >> 64 for j in range(POINTS**2)])
            result = em.run_em_algorithm(own, norm, scale)
            scale /= 10.0 if i % 4 == 0 else 1.0
            own = own - em.quantize_tensor(own, result["clustering_centers"])
            after.append(float(((own * norm) ** 2).mean()))
        found.append(after)
    return found


def coders(compress, em, layer):
    key = compress.KeyCompressor.__new__(compress.KeyCompressor)
    torch.nn.Module.__init__(key)
    key.num_key_value_heads, books = HEADS, []
    points = drawn(f"layers.{layer}.points", (HEADS, CODEBOOKS, POINTS, DIM))
    for i in range(CODEBOOKS):
        theta = points[:, i].view(HEADS, 2 * POINTS, DIM // 2) / 2 ** i / 4
        books.append((em.T @ theta).view(HEADS, POINTS**2, 2, DIM // 2).transpose(-1, -2).flatten(-2))
    key.codebook = torch.stack(books)
    value = compress.ValueCompressor(BITS, WIDTH)
    for name, shape in SHAPES.items():
        value.get_parameter(name).data = drawn(f"layers.{layer}.value.{name}", shape)
    value.learnable_scale.data = drawn(f"layers.{layer}.value_scale", (WIDTH,)).abs() + 0.5
    return key, value


@torch.no_grad()
def main():
    root = pathlib.Path(sys.argv[1])
    sys.modules["einops"] = types.SimpleNamespace(rearrange=rearranged)
    compress = module_of(root / "commvq/compress_evaluation.py", edits=[
        ("torch.nn.functional.gumbel_softmax(x, tau=1.0, hard=True)",
         "torch.nn.functional.one_hot(x.argmax(-1), 4).to(x.dtype)"),
        ("self.num_key_value_heads, 2, 64)", "self.num_key_value_heads, 2, 16)")])
    em = module_of(root / "training/quantize_key_cache.py", edits=[
        ("N_BITS = 12", f"N_BITS = {CODE_BITS}"), ("M_GROUP = 128", f"M_GROUP = {DIM}"), (".cuda()", ""),
        ("torch.randint(0, N, (center_num,))", "START")])
    model = tiny_model()
    seen = Inputs(model)
    torch.manual_seed(600)
    texts = [torch.randint(128, (n,)).tolist() for n in (240, 200)]
    for text in texts:
        model(torch.tensor([text]))
    attention = [layer.self_attn for layer in model.model.layers]
    made = [errors(em, own.k_proj(x), layer) for layer, (own, x) in enumerate(zip(attention, seen.take()))]
    prompts = []
    for seed in range(5):
        torch.manual_seed(601 + seed)
        ids = torch.randint(128, (BLOCK + 6,)).tolist()
        forced, full = ids[-4:], DynamicCache()
        tokens = ids[:-4]
        seen.take()
        model(torch.tensor([tokens]), past_key_values=full, use_cache=True)
        cache, some = DynamicCache(), ([], [])
        for layer, (own, rows) in enumerate(zip(attention, seen.take())):
            key, value = coders(compress, em, layer)
            codes, size = key.encode(own.k_proj(rows[None, :BLOCK]))
            keys = unpaired(key.decode(codes, size.half().float())).view(1, BLOCK, HEADS, DIM).transpose(1, 2)
            chosen, size = value.encode(own.v_proj(rows[None, :BLOCK]))
            values = value.decode(chosen, size.half().float()).view(1, BLOCK, HEADS, DIM).transpose(1, 2)
            cos, sin = model.model.rotary_emb(keys, torch.arange(BLOCK)[None])
            keys = apply_rotary_pos_emb(keys, keys, cos, sin)[0]
            for side, back in zip(some, (keys, values)):
                side.append([round(x, 5) for x in back.flatten()[::97].tolist()])
            rest = full.layers[layer]
            cache.update(torch.cat([keys, rest.keys[:, :, BLOCK:]], 2), torch.cat([values, rest.values[:, :, BLOCK:]], 2), layer)
        for step, token in enumerate(forced):
            out = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True,
                        position_ids=torch.tensor([[len(tokens) + step]]))
        prompts.append({"tokens": tokens, "forced": forced, "keys": some[0], "values": some[1],
                        "logits": [round(x, 5) for x in out.logits[0, -1].tolist()]})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"made_by": "UMass-Embodied-AGI/CommVQ d1f0377", "texts": texts, "errors": made,
                                "prompts": prompts}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
