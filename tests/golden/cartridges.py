"""A cartridge and what its authors' code says with it, for tests/methods/reuse/cartridges_test.cpp.

    pip install torch transformers==4.49.0 safetensors
    git clone https://github.com/HazyResearch/cartridges
    python tests/golden/cartridges.py FOLDER_OF_CLONES

The model is the random one of tests/support/tiny_model.h in the library. Entries begin as those of some first tokens,
with the first frozen, and get a random step in place of training. TrainableCache (cartridges/cache.py, run as it is)
saves them, scripts/train_cartridge.py brings the checkpoint into cartridges/, and TrainableCache.from_pretrained()
reads it again and stands before the question in the model. cartridges.json holds the question's tokens and every
eighth logit behind each. Written for torch 2.11, transformers 4.49 (which that code asks for);
cartridges ff1a3fb.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import torch
from authors_code import module_of
from random_stream import draw, uniform
from tiny_model import DIM, tiny_model
from transformers import DynamicCache

FOLDER = pathlib.Path(__file__).with_suffix("")
ENTRIES, QUESTION = 8, 11

sys.path.insert(0, str(FOLDER.parents[2] / "scripts"))
import train_cartridge


@torch.no_grad()
def main(clones):
    code = module_of(clones / "cartridges/cartridges/cache.py", ["pydrantic", "cartridges", "cartridges.context"])
    model = tiny_model()
    tokens = sorted(range(128), key=lambda i: draw(5, "cartridge golden", i))
    begun = model(torch.tensor([tokens[:ENTRIES]]), past_key_values=DynamicCache()).past_key_values
    trained = lambda side, entries: entries + 0.5 * torch.tensor(
        2 * uniform(5, side, entries.numel()) - 1, dtype=torch.float32).view_as(entries)
    keys = [trained(f"keys {i}", entries) for i, entries in enumerate(begun.key_cache)]
    values = [trained(f"values {i}", entries) for i, entries in enumerate(begun.value_cache)]
    config = code.AttnConfig(n_layers=len(keys), n_heads=2, head_dim=DIM)
    question = tokens[-QUESTION:]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "cache-step1.pt"
        code.TrainableCache(config, ENTRIES, keys, values, num_frozen_tokens=1).save(str(file))
        model.config.save_pretrained(folder)
        train_cartridge.convert(argparse.Namespace(model=folder, checkpoint=file, out=FOLDER))
        cache = code.TrainableCache.from_pretrained(str(file))
    logits = model(torch.tensor([question]), past_key_values=cache).logits[0]
    data = {"entries": ENTRIES, "question": question,
            "logits": [[round(x, 5) for x in row[::8].tolist()] for row in logits]}
    FOLDER.with_suffix(".json").write_text(json.dumps(data, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
