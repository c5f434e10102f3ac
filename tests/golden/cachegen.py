"""CacheGen's numbers before and after its coder, by its authors' code, for tests/methods/compression/cachegen_test.cpp.

    pip install torch
    git clone https://github.com/UChi-JCL/CacheGen
    python tests/golden/cachegen.py FOLDER_OF_CLONES

Writes cachegen.json. Run as they are, on the CPU: the table of bins of every quality level, the vectorised
quantisation of the encoder and the dequantisation of the decoder; the arithmetic coder between them, which is CUDA,
loses nothing and is left out. Rows are draws of harness/core/random.h, keys and values of 32 layers (the 7B table) and
of 80 (the 70B one). A case holds the decoded numbers of some layers, and null where a quotient lies within 1e-4 of the
middle between two codes. Written for torch 2.7; CacheGen 6bed34c.
"""

import json
import os
import pathlib
import sys

import numpy as np
import torch
from authors_code import module_of
from random_stream import uniform

TOKENS, CHANNELS = 3, 16
SHOWN = (0, 1, 2, 9, 10, 19, 20, 31, 39, 40, 79)


def rows(layers, purpose):
    """tests/support/random_entries.h, rounded to float16: a token's largest magnitude is then stored exactly."""
    draws = (2 * uniform(1, purpose, layers * TOKENS * CHANNELS) - 1).astype(np.float32)
    return torch.tensor(draws).half().float().view(layers, TOKENS, CHANNELS)


def main(folder):
    torch.Tensor.cuda = lambda tensor: tensor
    serde = folder / "CacheGen/LMCache/lmcache/storage_backend/serde"
    stubs = ["nvtx", "torchac", "torchac_cuda", "lmcache", "lmcache.config", "lmcache.logging", "lmcache.utils",
             "lmcache.storage_backend", "lmcache.storage_backend.serde", "lmcache.storage_backend.serde.serde",
             "lmcache.storage_backend.serde.cachegen_basics"]
    annotation = ("from lmcache.utils import _lmcache_nvtx_annotate", "_lmcache_nvtx_annotate = lambda function: function")
    rest = [annotation, ("init_logger(__name__)", "None"),
            ("import lmcache.storage_backend.serde.cachegen_basics as CGBasics", "")]
    basics = module_of(serde / "cachegen_basics.py", stubs, [annotation])
    encoder = module_of(serde / "cachegen_encoder.py", stubs, rest)
    decoder = module_of(serde / "cachegen_decoder.py", stubs, rest)
    cases = []
    for model, level in [("Mistral-7B", "1"), ("Mistral-7B", "2"), ("Mistral-7B", "3"),
                         ("Yukang/LongAlpaca-70B-16k", "2")]:
        os.environ["QUANT_LEVEL"] = level
        config = basics.CacheGenConfig.from_model_name(model)
        case = {"level": int(level), "layers": config.key_third_layers}
        for side, bins in [("keys", encoder.CacheGenSerializer.make_key_bins(None, config)),
                           ("values", encoder.CacheGenSerializer.make_value_bins(None, config))]:
            x = rows(config.key_third_layers, f"cachegen {side}")
            codes, largest = encoder.torch_quant_vectorized(bins, x)
            decoded = decoder.do_dequantize(codes.float(), bins, largest)
            quotient = x * (bins // 2 - 1)[:, None, None] / largest
            doubtful = ((quotient - quotient.floor()) - 0.5).abs() < 1e-4
            case[side] = {layer: [None if d else float(f"{v:.6g}") for v, d in
                                  zip(decoded[layer].flatten().tolist(), doubtful[layer].flatten().tolist())]
                          for layer in SHOWN if layer < config.key_third_layers}
        cases.append(case)
    out = pathlib.Path(__file__).with_suffix(".json")
    out.write_text(json.dumps({"made_by": "UChi-JCL/CacheGen 6bed34c, torch " + torch.__version__, "tokens": TOKENS,
                               "channels": CHANNELS, "cases": cases}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
