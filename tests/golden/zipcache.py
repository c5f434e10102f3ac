"""ZipCache's two classes of entries, by its authors' code, for tests/methods/compression/zipcache_test.cpp.

    pip install torch
    git clone https://github.com/ThisisBillhe/ZipCache
    python tests/golden/zipcache.py FOLDER_OF_CLONES

Writes zipcache.json. Run as they are: the channel-wise quantiser of keys and the channel-separable token-wise
quantiser of values (compress_function.py), on the entries of one class and head at a time. Restated, because it stands
inside a forward pass: an entry's saliency is the attention of its head group divided by the number of queries that see
it, and the share of the least salient entries is the coarser class. Entries and attention are draws of
harness/core/random.h: 100 entries of 2 kv heads with 32 channels, some of them large, 2 query heads a kv head. A case
holds the settings, and of each head the salient entries and every fourth entry's decoded keys and values, null where a
quotient lies so near to the middle between two codes that the rounding of a scale decides. Written for torch 2.7;
ZipCache b6932b9.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from authors_code import module_of
from random_stream import uniform

TOKENS, HEADS, GROUP, DIM = 100, 2, 2, 32


def floats(count, purpose):
    """tests/support/random_entries.h."""
    return torch.tensor((2 * uniform(1, purpose, count) - 1).astype(np.float32))


def rows(purpose):
    """[heads, tokens, dim], a few channels larger than the others, rounded to bfloat16."""
    scale = torch.where(torch.arange(DIM) % 7 == 3, 8.0, 1.0)
    drawn = floats(TOKENS * HEADS * DIM, purpose).view(TOKENS, HEADS, DIM) * scale
    return drawn.bfloat16().float().transpose(0, 1)


def doubtful(quotient, bits):
    """Whether scales and minima in float16, as the tests' codec keeps them, may choose another code."""
    return ((quotient - quotient.floor()) - 0.5).abs() < 6e-4 * 2**bits


def decoded(code, keys, values, bits):
    """Keys and values of one class and head, [tokens, dim], with nan where a code is doubtful."""
    k, v = keys[None, None].clone(), values[None, None].clone()
    packed, low, step = code.true_channelwise_compress(k, bits)
    back_k = code.true_channelwise_decompress(packed, low, step, bits, torch.float32, k.shape)[0, 0]
    doubt_k = doubtful((keys - low[0, 0]) / step[0, 0], bits)
    packed, low, step, scale = code.true_channel_tokenwise_compress(v, bits)
    back_v = code.true_channel_tokenwise_decompress(packed, low, step, bits, scale, torch.float32, v.shape)[0, 0]
    doubt_v = doubtful((values / scale.flatten() - low[0]) / step[0], bits)
    return back_k.masked_fill(doubt_k, torch.nan), back_v.masked_fill(doubt_v, torch.nan)


def main(folder):
    code = module_of(folder / "ZipCache/zipcache/models/CompressUtils/compress_function.py")
    keys, values = rows("zipcache keys"), rows("zipcache values")
    attention = (1 + floats(HEADS * GROUP * TOKENS, "zipcache attention")).view(HEADS, GROUP, TOKENS)
    saliency = attention.double().sum(1) / torch.arange(TOKENS, 0, -1)
    cases = []
    for salient, fine, coarse in [(0.6, 4, 2), (0.2, 8, 4)]:
        case = {"spec": {"name": "zipcache", "salient": salient, "bits_salient": fine, "bits": coarse}, "heads": []}
        for head in range(HEADS):
            coarse_ids = saliency[head].topk(TOKENS - int(salient * TOKENS + 1e-9), largest=False).indices.sort().values
            fine_ids = torch.tensor(sorted(set(range(TOKENS)) - set(coarse_ids.tolist())))
            back = torch.zeros(2, TOKENS, DIM)
            for ids, bits in ((fine_ids, fine), (coarse_ids, coarse)):
                back[0, ids], back[1, ids] = decoded(code, keys[head, ids], values[head, ids], bits)
            shown = lambda x: [None if v != v else float(f"{v:.5g}") for v in x[::4].flatten().tolist()]
            case["heads"].append({"salient": fine_ids.tolist(), "keys": shown(back[0]), "values": shown(back[1])})
        cases.append(case)
    out = pathlib.Path(__file__).with_suffix(".json")
    out.write_text(json.dumps({"made_by": "ThisisBillhe/ZipCache b6932b9, torch " + torch.__version__, "tokens": TOKENS,
                               "cases": cases}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
