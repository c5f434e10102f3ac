"""Makes sentence_embeddings.json: embeddings of all-MiniLM-L6-v2 by sentence-transformers, in float32 on the CPU.

    python tests/golden/sentence_embeddings.py ~/.cache/kvarena/models/all-minilm-l6-v2 > tests/golden/sentence_embeddings.json

Written by sentence-transformers 6.2.0 and torch 2.11.0.
"""

import json
import sys

from sentence_transformers import SentenceTransformer

TEXTS = [
    "",
    "The ferry to Amrum leaves at half past nine.",
    "At 9:30 the boat for Amrum departs.",
    "Crème brûlée, naïve café — ÅNGSTRÖM; 北京 42°!",
    "def add(a, b):\n    return a + b",
    " ".join(f"Entry {i} of the register names a town and its mayor." for i in range(60)),  # cut at 256 word pieces
]

model = SentenceTransformer(sys.argv[1], device="cpu")
assert model.max_seq_length == 256, model.max_seq_length
rows = [{"text": text, "embedding": [round(float(x), 7) for x in model.encode(text)]} for text in TEXTS]
json.dump({"rows": rows}, sys.stdout, ensure_ascii=False)
