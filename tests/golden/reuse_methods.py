"""Prompts put together from entries of their parts, for tests/methods/reuse/*_test.cpp.

    pip install torch transformers
    git clone https://github.com/YaoJiayi/CacheBlend && git clone https://github.com/DerekHJH/epic
    git clone https://github.com/FastMAS/KVCOMM
    python tests/golden/reuse_methods.py FOLDER_OF_CLONES

Writes reuse_methods/NAME.json. The model is the random one of tests/support/tiny_model.h, run here by hand in float64
over the library's weights: each part is computed alone where it stands in the prompt, which is what turning its keys
amounts to, then the chosen tokens and the question go through the layers over fresh and stored entries alike. A case
names the method's settings, the tokens, where prefix and question are, which context tokens are computed anew, and
every eighth logit after the last token.

Which tokens: EPIC's are those of its authors' evaluation (benchmarks_ours/evals/e2e/main.py, run as it is, its engine
and tokenizer replaced); CacheBlend's those of its authors' attention (vllm_blend's XFormersImpl.forward, run as it is
up to the choice) over fresh and stored values of layer 1. SpecCache has no public code: its equations 1 to 6 are
restated over the norms of the residual stream; tokens are their own words, so equation 7 changes nothing. Choices
whose margin is below 1e-4 are not written. MEPIC has none either: its padding in front of chunks (section 3.2.1) is
restated. KVCOMM's anchors and offsets are its authors' (KVCOMM/llm/kvcomm_engine.py, run as it is, over parts of one
prompt). Written for torch 2.7, transformers 5.23; CacheBlend 55ad026, epic 3204410, KVCOMM 48ca0b3.
"""

import math
import pathlib
import sys
import types
from unittest import mock

import torch
from authors_code import module_of
from by_method import write
from random_stream import draw
from tiny_model import DIM, Llama, tiny_model

class Request:
    """A prompt, its parts, and their entries."""

    def __init__(self, llama, seed, n, prefix, question, chunk):
        order = sorted(range(128), key=lambda i: draw(seed, "reuse golden", i))
        self.ids = torch.tensor((order * (n // 128 + 1))[:n])
        self.llama, self.n, self.prefix, self.question, self.chunk = llama, n, prefix, question, chunk
        cuts = ([0] if prefix else []) + list(range(prefix, question, chunk)) + [question]
        self.parts = list(zip(cuts, cuts[1:]))

    def stored(self):
        entries = self.llama.empty(self.n)
        for begin, end in self.parts:
            self.llama.run(self.ids, range(begin, end), entries, first=begin)
        return entries

    def full(self):
        entries = self.llama.empty(self.n)
        logits, norms = self.llama.run(self.ids, range(self.n), entries)
        return logits[-1], norms

    def case(self, spec, recomputed, logits):
        return {"spec": {**spec, "chunk": self.chunk}, "tokens": self.ids.tolist(), "prefix": self.prefix,
                "question": self.question, "recomputed": sorted(recomputed),
                "logits": [round(x, 5) for x in logits[::8].tolist()]}

    def chosen(self, spec, tokens):
        rows = sorted(tokens) + list(range(self.question, self.n))
        return self.case(spec, tokens, self.llama.run(self.ids, rows, self.stored())[0][-1])


def epic_tokens(code, request, count):
    """cache_fuse_metadata["kvlink"] of the authors' evaluation, whose modules are the request's parts."""
    metadata = {}
    shell = lambda **fields: types.SimpleNamespace(**fields)
    inner = shell(cache_fuse_metadata=metadata, layers=[])
    engine = shell(llm_engine=shell(model_executor=shell(driver_worker=shell(model_runner=shell(model=shell(model=inner))))),
                   generate=lambda **_: [shell(outputs=[shell(text="")],
                                               metrics=shell(first_token_time=0, first_scheduled_time=0))])
    modules = [request.ids[begin:end].tolist() for begin, end in request.parts]
    tokenizer = shell(apply_chat_template=lambda _: modules[0], encode=lambda text: modules[int(text)], eos_token_id=-1)
    modules.append(request.ids[request.question: request.n - 1].tolist())  # the evaluation appends one token

    class Samples(list):
        def update(self, _):
            pass

        def save_dataset(self, _):
            pass

    sample = ("", [str(i) for i in range(1, len(modules) - 1)], str(len(modules) - 1))
    evaluation = next(value for value in vars(code).values() if hasattr(value, "run_inference"))
    code.SamplingParams = lambda **_: None
    evaluation.run_inference(None, shell(approach=f"kvlink-{count}", dataset="", result_path=""), Samples([sample]),
                             tokenizer, engine)
    # Chunks shorter than the count run over into the next one's.
    return sorted({i for i in metadata["kvlink"] if i < request.question})


def epic(requests, clones):
    code = module_of(clones / "epic/benchmarks_ours/evals/e2e/main.py",
                     ["vllm", "vllm.attention", "vllm.attention.selector", "benchmarks_ours", "benchmarks_ours.data_sets",
                      "benchmarks_ours.data_sets.data_set", "benchmarks_ours.evals", "benchmarks_ours.evals.utils"],
                     edits=[("global_force_attn_backend(_Backend.XFORMERS)\n", "")])
    return [request.chosen({"name": "epic", "tokens": count}, epic_tokens(code, request, count))
            for request in requests for count in (1, 4, 16)]


def cacheblend(requests, clones):
    code = module_of(clones / "CacheBlend/vllm_blend/vllm/attention/backends/xformers.py",
                     ["xformers", "xformers.ops", "xformers.ops.fmha", "xformers.ops.fmha.attn_bias", "vllm",
                      "vllm.attention", "vllm.attention.backends", "vllm.attention.backends.abstract", "vllm.attention.ops",
                      "vllm.attention.ops.paged_attn", "vllm.logger"],
                     edits=[("init_logger(__name__)", "None"), ("AttentionMetadata[XFormersMetadata]", "object")])
    return [case for request in requests for share in (0.1, 0.15, 0.4)
            for case in [blended(code, request, share)] if case]


def blended(code, request, share):
    stored, chosen = request.stored(), []

    def narrow(layer, keys, values, rows):
        if layer != 1:
            return None
        rows_of = lambda x: x.transpose(0, 1).reshape(request.n, -1)
        attention = object.__new__(code.XFormersImpl)
        attention.num_heads = attention.num_kv_heads = 2
        attention.head_size = DIM
        metadata = {"suffix_len": request.n - request.question, "recomp_ratio": share}
        try:  # it goes on to attend, for which nothing is here
            attention.forward(rows_of(keys), rows_of(keys), rows_of(values), None, types.SimpleNamespace(
                prefill_metadata=types.SimpleNamespace()), 1.0, 1, metadata, [rows_of(x) for x in stored[1]])
        except AttributeError:
            pass
        chosen.extend(metadata["imp_indices"].tolist())
        return chosen

    distance = []
    logits, _ = request.llama.run(request.ids, range(request.n), stored, narrow=lambda *given: (
        distance.append((given[2] - stored[1][1]).square().sum((0, 2))) if given[0] == 1 else None, narrow(*given))[1])
    count = int((request.n - (request.n - request.question)) * share)
    ranked = distance[0][: request.question].sort(descending=True).values
    if ranked[count - 1] - ranked[count] < 1e-4 * ranked[count]:
        return None
    return request.case({"name": "cacheblend", "recompute": share}, [i for i in chosen if i < request.question], logits[-1])


def mepic(requests, _):
    cases = []
    for request in requests:
        for block in (4, 16, 64):
            # A chunk's tokens in blocks behind padding: those of the first are computed, but at the prompt's beginning.
            padded = [[None] * (-(end - begin) % block) + list(range(begin, end)) for begin, end in request.parts[1:]]
            first = [i for tokens in padded for i in tokens[:block] if i is not None]
            cases.append(request.chosen({"name": "mepic", "block": block}, first))
    return cases


def kvcomm(requests, clones):
    code = module_of(clones / "KVCOMM/KVCOMM/llm/kvcomm_engine.py",
                     ["KVCOMM", "KVCOMM.llm", "KVCOMM.llm.token_ops", "KVCOMM.utils", "KVCOMM.utils.log"])
    code.logger = mock.MagicMock()
    return [communicated(code, request, threshold) for request in requests for threshold in (0.3, 1)]


def communicated(code, request, threshold):
    engine = code.KVCOMMEngine(types.SimpleNamespace(node_id="a", config=types.SimpleNamespace(threshold=threshold)))
    alone, entries = request.stored(), request.stored()
    stacks = lambda held, begin, end, turn=0: [torch.stack(side)[:, None] for side in (
        [request.llama.rotated(layer[0][:, begin:end], torch.full((end - begin,), turn)) for layer in held],
        [layer[1][:, begin:end] for layer in held])]
    cache = lambda keys, values: types.SimpleNamespace(key_cache=list(keys), value_cache=list(values),
                                                       _seen_tokens=keys.shape[-2])
    nothing = torch.zeros(len(alone), 1, 2, 0, DIM, dtype=torch.float64)  # no text follows a part
    anchors = []
    for begin, end in request.parts[1:]:
        computed, _ = engine.predict_as_anchor(
            cache(*stacks(alone, begin, end)), [{"ph_value_embedding": stacks(alone, *anchor)[1]} for anchor in anchors],
            [(b - a, 0) for a, b in anchors], [0] * len(anchors))
        if computed:
            request.llama.run(request.ids, range(begin, end), entries)
            anchors.append((begin, end))
            continue
        pool = []
        for a, b in anchors:
            keys, values = stacks(alone, a, b, begin - a)
            real_keys, real_values = stacks(entries, a, b, begin - a)
            pool.append({"ph_key_embedding": keys, "ph_value_embedding": values, "a_ph_key_delta": real_keys - keys,
                         "a_ph_value_delta": real_values - values, "a_pf_key_delta": nothing,
                         "a_pf_value_delta": nothing})
        part, _ = engine.offset_kv_cache_pair("part", str(begin), f"{id(request)} {threshold} {begin}",
                                              cache(*stacks(alone, begin, end)), cache(nothing, nothing), pool)
        for layer, keys, values in zip(entries, part.key_cache, part.value_cache):
            layer[0][:, begin:end], layer[1][:, begin:end] = keys[0], values[0]
    logits, _ = request.llama.run(request.ids, range(request.question, request.n), entries)
    return request.case({"name": "kvcomm", "threshold": threshold}, [i for a, b in anchors for i in range(a, b)],
                        logits[-1])


def full_reuse(requests, _):
    return [request.chosen({"name": "full_reuse"}, []) for request in requests]


def full_recompute(requests, _):
    cases = [request.case({"name": "full_recompute"}, range(request.question), request.full()[0]) for request in requests]
    for case in cases:
        del case["spec"]["chunk"]  # nothing is cut
    return cases


def prefix_cache(requests, _):
    """What an earlier prompt shares is the prefix and the first chunk behind it, in whole blocks."""
    cases = []
    for request in requests:
        shared = next(end for _, end in request.parts if end > request.prefix)
        for block in (1, 16):
            reused = min(shared, request.n - 1) // block * block
            cases.append(request.case({"name": "prefix_cache", "block": block}, range(reused, request.question),
                                      request.full()[0]))
    return cases


def speccache(requests, _):
    cases = []
    for request in requests:
        norms = torch.stack(request.full()[1])
        for layers, count in (("last_third", 1), ("last_two_thirds", 2), ("all", 3)):
            for recompute, smooth, cover in ((0.15, 0.4, 0.7), (0.3, 0.2, 0.5)):
                tokens = important(norms[-count:].mean(0).tolist(), recompute, smooth, cover)
                if tokens is not None:
                    cases.append(request.chosen(
                        {"name": "speccache", "recompute": recompute, "tau_smooth": smooth, "tau_cover": cover,
                         "layers": layers, "max_span": 16}, [i for i in tokens if i < request.question]))
    return cases


def important(importance, recompute, smooth, cover):
    """Equations 2 to 6; None where rounding could choose otherwise."""
    count = math.ceil(recompute * len(importance))
    order = sorted(range(len(importance)), key=lambda i: -importance[i])
    if importance[order[count - 1]] - importance[order[count]] < 1e-4 * importance[order[count]]:
        return None
    chosen = set(order[:count])
    low, high = min(importance), max(importance)
    unit = [(value - low) / (high - low) for value in importance]
    spans = [[0]]
    for i, (a, b) in enumerate(zip(unit, unit[1:])):
        change = abs(b - a) / a if a > 0 else math.inf
        if abs(change - smooth) < 1e-4:
            return None
        if change < smooth and len(spans[-1]) < 16:
            spans[-1].append(i + 1)
        else:
            spans.append([i + 1])
    for span in spans:
        if sum(i in chosen for i in span) / len(span) >= cover:
            chosen.update(span)
    return chosen


if __name__ == "__main__":
    llama = Llama(tiny_model())
    shapes = [(1, 100, 0, 90, 24), (2, 120, 9, 112, 16), (3, 150, 20, 141, 40)]
    requests = [Request(llama, *shape) for shape in shapes]
    for part in (full_recompute, full_reuse, prefix_cache, epic, mepic, cacheblend, kvcomm, speccache):
        write(__file__, part.__name__, {"cases": part(requests, pathlib.Path(sys.argv[1]))})
