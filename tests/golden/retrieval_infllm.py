"""InfLLM's attention pass by pass, by its authors' code, for tests/methods/retrieval/infllm_test.cpp.

    pip install torch scikit-learn
    git clone https://github.com/thunlp/InfLLM
    python tests/golden/retrieval_infllm.py FOLDER_OF_CLONES > tests/golden/retrieval_infllm.json

Queries, keys and values are drawn by harness/core/random.h's rule: 4 query heads over 2 kv heads of 16 channels, float32,
without rotation; the test rotates them. A case holds the settings, the tokens of each pass, and of each pass the blocks
attended, and for some the output of their first and last query.

Run as it is: ContextManager with RotaryEmbeddingESM, on the CPU (streams and events do nothing, "cuda" is "cpu"). In cases
that are `mended`, the mask's offset counts the tokens up to the pass alone, not those of the whole call: as published, the
queries of a pass see entries from afar that some of them also see in their window. Passes of one token are the same either
way. Written for torch 2.11; InfLLM 12b7079.
"""

import contextlib
import importlib
import json
import pathlib
import sys
import types

import torch
from authors_code import module_of
from retrieval_methods import DIM, KV_HEADS, Q_HEADS, floats

MASK = ("sliding_window = (self.global_remainder[0].size(-2) + rmd_st, self.n_local)",
        "sliding_window = (self._global_remainder_ed - self._global_remainder_st + rmd_st, self.n_local)")


def on_the_cpu(make):
    return lambda *a, **kw: make(*a, **{**kw, **({"device": "cpu"} if kw.get("device") == "cuda" else {})})


def load(folder, mended):
    package = types.ModuleType("inf_llm")
    package.__path__ = [str(folder / "InfLLM/inf_llm")]
    attention = types.ModuleType("inf_llm.attention")
    attention.__path__ = [str(folder / "InfLLM/inf_llm/attention")]
    sys.modules.update({"inf_llm": package, "inf_llm.attention": attention})
    rope = importlib.import_module("inf_llm.attention.rope")
    edits = [("from .dot_production_attention", "from inf_llm.attention.dot_production_attention"),
             ("assert _t.is_cuda", "pass")]
    code = module_of(folder / "InfLLM/inf_llm/attention/context_manager.py", edits=edits + [MASK] * mended)
    return rope.RotaryEmbeddingESM, code.ContextManager


def case(folder, settings, passes, seed, mended):
    embedding, manager = load(folder, mended)
    n = sum(passes)
    q = 4 * floats(n * Q_HEADS * DIM, "q", seed).view(1, n, Q_HEADS, DIM).transpose(1, 2)
    k = floats(n * KV_HEADS * DIM, "keys", seed).view(1, n, KV_HEADS, DIM).transpose(1, 2)
    v = floats(n * KV_HEADS * DIM, "values", seed).view(1, n, KV_HEADS, DIM).transpose(1, 2)
    context = manager(embedding(DIM, 10000.0), settings["init"], settings["local"], settings["block"],
                      settings["cached_blocks"], settings["topk"], settings["exec"], repr_topk=settings["repr"])
    seen = []
    choose = context.calc_block_topk

    def watched(queries):
        chosen = choose(queries)
        seen.append(sorted(chosen[0]))
        return chosen

    context.calc_block_topk = watched
    made, at = [], 0
    for count in passes:
        part = slice(at, at + count)
        out = context.append(q[:, :, part], k[:, :, part], v[:, :, part], q[:, :, part], k[:, :, part], v[:, :, part])
        made.append({"tokens": count, "blocks": seen[-1]})
        if count > 1 or len(made) % 7 == 0:
            for name, row in (("first", 0), ("last", -1)):
                made[-1][name] = [round(x, 5) for x in out[0, :, row].flatten().tolist()]
        at += count
    assert len(seen) == len(passes)
    return {"method": {"name": "infllm", **settings}, "seed": seed, "mended": mended, "passes": made}


if __name__ == "__main__":
    clones = pathlib.Path(sys.argv[1])
    for name in ("empty", "arange", "zeros"):
        setattr(torch, name, on_the_cpu(getattr(torch, name)))
    torch.cuda.stream = lambda *_: contextlib.nullcontext()
    torch.cuda.current_stream = lambda: None
    torch.cuda.Event = lambda: types.SimpleNamespace(record=lambda *_: None, wait=lambda: None)
    small = {"init": 4, "local": 24, "block": 8, "topk": 3, "repr": 2, "exec": 16, "cached_blocks": 4}
    print(json.dumps({
        "made_by": "tests/golden/retrieval_infllm.py, torch " + torch.__version__,
        "cases": [case(clones, small, [1] * 110, 1, False),
                  case(clones, small, [16] * 9 + [5] + [1] * 16, 2, True),
                  case(clones, {**small, "init": 0, "local": 16, "topk": 5, "cached_blocks": 5, "repr": 3},
                       [16] * 8 + [1] * 8, 3, True)],
    }, separators=(",", ":")))
