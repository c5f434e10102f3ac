"""Logits and greedy answers of Gemma 3 270M by the transformers library, for tests/harness/model/gemma3_logits_test.cpp.

    pip install torch transformers gguf numpy
    python tests/golden/gemma3_logits.py MODEL.gguf > tests/golden/gemma3_logits.json

The library dequantises the GGUF file itself; weights and arithmetic are float32 on the CPU. Written for torch 2.11,
transformers 5.23. For each prompt the file holds the text (of stories the number of sentences and what follows them), the
number and the last of its token ids by sentencepiece (model/gemma3_tokens.py), for a few positions the logits of a spread
of vocabulary ids and of the ten best ones, and the 64 tokens that follow greedily with the distance of each from the
second best. Prompts are from 50 to 16,000 tokens, so that windows of 512 slide in all but the first two; those of more
than 4,096 are read in pieces of so many, for want of memory.
"""

import json
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent / "model"))
from gemma3_tokens import build
from transformers import AutoModelForCausalLM

ANSWER = 64
PIECE = 4096
SPREAD = list(range(0, 262144, 5003))  # 53 ids
PLACES = ["harbour", "library", "mountain hut", "market", "observatory", "railway station", "garden", "museum", "mill"]
KEEPERS = ["Ada", "Bruno", "Chiara", "Dmitri", "Elif", "Farid", "Greta", "Hiro", "Ines", "Jonas", "Keiko"]


def story(sentences):
    """Sentences that differ, so that what lies behind the window matters."""
    return "".join(
        f"In the year {1801 + i}, the keeper of the {PLACES[i % 9]} was {KEEPERS[i % 11]}, who wrote {i * 37 % 101} pages "
        f"about the weather and the {PLACES[(i * 5 + 2) % 9]}. " for i in range(sentences))


PROMPTS = [
    "The history of the bicycle begins in the early nineteenth century. The first machines had two wheels in line, no "
    "pedals and no chain; riders pushed themselves along with their feet. Pedals were added on the front wheel in the",
    "def moving_average(values, width):\n    \"\"\"Means of `width` neighbours.\"\"\"\n    if width < 1:\n"
    "        raise ValueError(width)\n    sums = [0.0]\n    for value in values:\n        sums.append(sums[-1] + value)\n"
    "    return [(sums[i + width] - sums[i]) / width for i in range(len(values) - width + 1)]\n\n\n"
    "def moving_median(values, width):\n    \"\"\"Medians of `width` neighbours.\"\"\"\n",
    (16, "In the year 1805, the keeper was"),
    (44, "The keeper of the museum in the year 1808 was called"),
    (110, "To sum up, between 1801 and 1910 the keepers wrote about"),
    (192, "The keepers whose names begin with a G were called"),
    (260, "In the year 1999, the keeper of the"),
    (510, "And what did the keeper of the mill write about in the year 2000? He wrote"),
]


def read(model, ids, cache=None):
    """Yields the hidden state of each token, and at last the cache."""
    for begin in range(0, len(ids), PIECE):
        seen = model.model(torch.tensor([ids[begin:begin + PIECE]]), past_key_values=cache, use_cache=True)
        cache = seen.past_key_values
        yield from seen.last_hidden_state[0]
    yield cache


def main() -> None:
    torch.manual_seed(0)
    path = pathlib.Path(sys.argv[1])
    tokenizer = build(path)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    cases = []
    for prompt in PROMPTS:
        is_story = isinstance(prompt, tuple)
        ids = [2] + tokenizer.encode(story(prompt[0]) + prompt[1] if is_story else prompt)
        rows, answer, margins = [], [], []
        with torch.no_grad():
            *states, cache = read(model, ids)
            for position in sorted({0, len(ids) // 2, len(ids) - 1}):
                logits = model.lm_head(states[position])
                picked = SPREAD + torch.topk(logits, 10).indices.tolist()
                rows.append({"position": position, "ids": picked, "logits": [round(logits[i].item(), 5) for i in picked]})
            while True:
                best = torch.topk(model.lm_head(states[-1]), 2)
                answer.append(best.indices[0].item())
                margins.append(round((best.values[0] - best.values[1]).item(), 4))
                if len(answer) == ANSWER:
                    break
                *states, cache = read(model, answer[-1:], cache)
        print(len(ids), min(margins), repr(tokenizer.decode(answer)), file=sys.stderr)
        text = {"sentences": prompt[0], "end": prompt[1]} if is_story else {"text": prompt}
        cases.append({**text, "tokens": len(ids), "last": ids[-32:], "rows": rows, "answer": answer, "margins": margins})
    json.dump({"model": path.name, "cases": cases}, sys.stdout)
    print()


main()
