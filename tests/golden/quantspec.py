"""What QuantSpec's two planes of codes say, for tests/methods/verification/quantspec_test.cpp.

    pip install torch numpy
    python tests/golden/quantspec.py

Writes quantspec.json. The arithmetic is that of the authors' quantisation (rishabh-16/QuantSpec,
kernels_old/quantize/quant_pack_int8toint8_upperlower.py), restated without its packing kernels; scales and minima are
rounded to float16 before codes are chosen, as they are kept. Rows are draws of harness/core/random.h rounded to bf16.
Written for torch 2.11.
"""

import json
import pathlib

import torch
from random_stream import uniform

HERE = pathlib.Path(__file__).parent
TOKENS, DIM, GROUP = 64, 32, 32


def planes(x):
    """Decoded upper plane and both, of groups along dimension 0 of [group, n]."""
    low = x.amin(0).half().float()
    scale = ((x.amax(0) - x.amin(0)) / 15).half().float()
    upper = ((x - low) / scale).clamp(0, 15).round()
    lower = ((x - (upper * scale + low)) / (scale / 16)).clamp(-8, 7).round()
    return upper * scale + low, upper * scale + lower * (scale / 16) + low


def main():
    rows = (2 * torch.from_numpy(uniform(1, "quantspec", TOKENS * DIM)) - 1).float()
    rows = (rows * (1 + torch.arange(TOKENS * DIM) % 7)).bfloat16().float().view(TOKENS, DIM)
    keys = [planes(rows[t : t + GROUP]) for t in range(0, TOKENS, GROUP)]
    values = planes(rows.T)
    found = {"keys": {"upper": torch.cat([k[0] for k in keys]), "both": torch.cat([k[1] for k in keys])},
             "values": {"upper": values[0].T, "both": values[1].T}}
    text = {side: {plane: [round(v, 6) for v in x.flatten().tolist()] for plane, x in two.items()}
            for side, two in found.items()}
    out = {"made_by": "tests/golden/quantspec.py", "torch": torch.__version__, "tokens": TOKENS, "head_dim": DIM,
           "group_size": GROUP, **text}
    (HERE / "quantspec.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
