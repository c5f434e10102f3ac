"""Logits of SmolLM2-135M-Instruct by the transformers library, for tests/harness/model/smollm2_logits_test.cpp.

    pip install torch transformers gguf numpy
    python tests/golden/smollm2_logits.py MODEL.gguf > tests/golden/smollm2_logits.json

The library dequantises the GGUF file itself; weights and arithmetic are float32 on the CPU. Written for torch 2.11,
transformers 5.23. For each prompt the file holds token ids and, for a few positions, the logits of a spread of
vocabulary ids and of the ten best ones.
"""

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = [
    "The capital of France is",
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nName three rivers that flow through Germany.<|im_end|>\n<|im_start|>assistant\n",
    "A cache keeps what was computed once so that it need not be computed again. " * 40 + "In short, a cache",
]
SPREAD = list(range(0, 49152, 997))  # 50 ids


def main() -> None:
    torch.manual_seed(0)
    path = pathlib.Path(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    cases = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        with torch.no_grad():
            logits = model(ids).logits[0]
        positions = sorted({0, len(logits) // 2, len(logits) - 1})
        rows = []
        for position in positions:
            best = torch.topk(logits[position], 10).indices.tolist()
            picked = SPREAD + best
            rows.append({
                "position": position,
                "ids": picked,
                "logits": [round(logits[position, i].item(), 5) for i in picked],
            })
        cases.append({"tokens": ids[0].tolist(), "rows": rows})
    json.dump({"model": path.name, "cases": cases}, sys.stdout)
    print()


main()
