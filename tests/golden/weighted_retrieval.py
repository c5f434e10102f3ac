"""Attention of retrieval methods whose entries have weights, by their authors' code, for
tests/methods/retrieval/{magicpig,retroinfer,sparq,vattention}_test.cpp.

    pip install torch transformers triton scipy
    git clone https://github.com/Infini-AI-Lab/MagicPIG && git clone https://github.com/microsoft/RetrievalAttention
    git clone https://github.com/graphcore-research/llm-inference-research
    git clone https://github.com/xAlg-ai/sparse-attention-hub
    TRITON_INTERPRET=1 python tests/golden/weighted_retrieval.py FOLDER_OF_CLONES [METHOD...]

Writes weighted_retrieval/NAME.json. Keys, values and queries are drawn by harness/core/random.h's rule, so the test holds
the same: 4 query heads over 2 kv heads of 16 channels, float32, no rotation; queries are three times as long, so that
attention has something to choose. A case names settings and holds the attention of a step's query heads over a prompt of
n entries and the step's own.

Run as they are: MagicPIG's SimCache (ac9aa36), the reference of its CPU code, over its second layer, with our normal
numbers as directions, the same for both heads as in its models/attnserver.py, and in float64; SparQ's AnnAttention
(ead9b6a); sparse-attention-hub's maskers and attention (1a048c9), which draw by our rule; RetroInfer's segment_k_means in triton's interpreter, its sizes of config.py with segments of `segment`
entries, and sparse_attention_gpu of retroinfer_cache_gpu.py (6b1228c), whose CUDA kernels are restated in torch:
batch_gemm_softmax as its test does, copies as loops, and weighted_flash_decoding as a softmax whose sum weighs each
cluster by its size. Written for torch 2.11, transformers 5.2, triton 3.6.
"""

import ast
import math
import pathlib
import sys
import types
from dataclasses import dataclass
from functools import partial
from typing import Any, List, Optional, Tuple, Union, cast

import numpy as np
import torch
from authors_code import module_of, sparse_attention_hub
from by_method import write
from random_stream import uniform

Q_HEADS, KV_HEADS, DIM = 4, 2, 16
GROUP = Q_HEADS // KV_HEADS


def floats(purpose, seed, *sizes):
    """tests/support/random_entries.h."""
    return torch.tensor((2 * uniform(seed, purpose, math.prod(sizes)) - 1).astype(np.float32)).view(*sizes)


def entries(n, seed):
    """Keys and values [1, kv_heads, n + 1, dim], and a query [1, q_heads, 1, dim]."""
    rows = lambda what: torch.cat([floats(what, seed, n, KV_HEADS, DIM), floats("more " + what, seed, 1, KV_HEADS, DIM)])
    keys, values = (rows(what).transpose(0, 1).unsqueeze(0).contiguous() for what in ("keys", "values"))
    return keys, values, 3 * floats("q", seed, 1, Q_HEADS, 1, DIM)


def case(method, n, seed, out):
    return {"method": method, "n": n, "seed": seed, "out": [round(x, 6) for x in out.flatten().tolist()]}


def magicpig(folder):
    code = module_of(folder / "MagicPIG/evaluations/RULER/pred/cache_ref.py",
                     edits=[("torch.float32", "torch.float64"), (".float()", ".double()")])
    cases = []
    for n, bits, tables, sinks, window, seed in [(200, 4, 20, 4, 64, 1), (150, 6, 60, 2, 16, 2), (300, 8, 150, 0, 32, 3)]:
        keys, values, q = (x.double() for x in entries(n, seed))
        cache = code.SimCache(K=bits, L=tables, num_qh=Q_HEADS, num_kh=KV_HEADS, head_dim=DIM, num_layers=2, device="cpu",
                              dtype=torch.float64)
        draws = uniform(0, "magicpig directions", 2 * DIM * bits * tables)
        normal = np.sqrt(-2 * np.log1p(-draws[0::2])) * np.cos(2 * np.pi * draws[1::2])
        directions = torch.tensor(normal.astype(np.float32)).double().view(1, 1, DIM, -1)
        cache.hash_matrix, cache.num_qh, cache.num_kh, cache.head_dim = [directions.expand(1, KV_HEADS, -1, -1)], Q_HEADS, KV_HEADS, DIM
        for layer in range(2):
            cache.update(keys[:, :, :n], values[:, :, :n], q, layer)
            cache.select_kv_cache(sinks, layer, window)
        out = cache.update(keys[:, :, n:], values[:, :, n:], q, 1)
        assert 0.01 < cache.sparse < 0.9, cache.sparse
        cases.append(case({"name": "magicpig", "bits": bits, "tables": tables, "sinks": sinks, "window": window,
                           "dense_every": 0}, n, seed, out))
    return cases


def sparq(folder):
    folder = folder / "llm-inference-research/llminference/methods"
    scope = {**globals(), "Tensor": torch.Tensor, "nn": torch.nn}

    def take(file, names):
        nodes = [node for node in ast.parse((folder / file).read_text()).body
                 if getattr(node, "name", None) in names or getattr(getattr(node, "targets", [node])[0], "id", None) in names]
        exec(compile(ast.Module(nodes, []), file, "exec"), scope)

    take("sparse_attention.py", ["score_to_mask", "causal_index"])
    scope["sparse_attention"] = types.SimpleNamespace(causal_index=scope["causal_index"])
    take("ann_attention.py", ["gather", "LowRank", "SparseQ", "ScoreSettings", "Settings", "AnnAttention"])
    cases = []
    for n, k, local, rank, mean, seed in [(200, 32, 8, 4, True, 1), (150, 20, 5, 8, True, 2), (120, 16, 4, 16, True, 3),
                                          (100, 24, 6, 2, False, 4)]:
        keys, values, q = entries(n, seed)
        settings = scope["Settings"](k=k, local_k=local, reallocate_to_mean_value=mean, score="sparse_q", rank=rank)
        out, _ = scope["AnnAttention"](settings, KV_HEADS, DIM)(q, keys, values, torch.zeros(1, Q_HEADS, 1, n + 1))
        cases.append(case({"name": "sparq", "rank": rank, "tokens": k + 1, "mean": mean}, n, seed, out))
    return cases


def retroinfer(folder):
    folder = folder / "RetrievalAttention"
    sys.path.insert(0, str(folder / "cache_hub"))
    import kmeans  # triton reads its source file
    from triton.runtime import interpreter
    number = lambda x: x.handle.data.item() if hasattr(x, "handle") else x
    interpreter.range = lambda *bounds: range(*map(number, bounds))  # numpy 2.4 makes no number of an array
    code = module_of(folder / "cache_hub/retroinfer_cache_gpu.py",
                     ["retroinfer_kernels", "wave_cache", "flash_attn", "weighted_flash_decoding"],
                     edits=[("from .cache", "from wave_cache"), ("from .kmeans", "from kmeans")])

    def softmax(queries, centroids, _gemm, _norm, _sum, out, groups, group, _count, dim, scale, _):
        out.copy_(torch.softmax(queries.view(groups, group, dim) @ centroids.transpose(1, 2) * scale, -1))

    def gather(from_keys, to_keys, from_values, to_values, from_sizes, to_sizes, order, groups, _all, count, _most, first, _):
        for g in range(groups):
            chosen = order[g, first:first + count]
            to_keys[g, :, 0], to_values[g, :, 0], to_sizes[g, 0, 0] = from_keys[g, chosen], from_values[g, chosen], from_sizes[g, chosen]

    def concat(steady_keys, keys, to_keys, steady_values, values, to_values, ends, order, lengths, groups, _s, _l, _e, count,
               _count, steady):
        for g in range(groups):
            taken = [torch.arange(ends[g, c - 1] if c > 0 else 0, ends[g, c]) for c in order[g, :count].tolist()]
            for to, fixed, listed in ((to_keys, steady_keys, keys), (to_values, steady_values, values)):
                rows = torch.cat([fixed[0, g, :steady], listed[0, g, torch.cat(taken)]])
                to[g, :len(rows), 0] = rows
            lengths[g] = len(rows)

    def attend(queries, keys, values, sizes=None, previous_out=None, previous_lse=None, cache_seqlens=None,
               return_softmax_lse=False):
        scores = torch.einsum("gqhd,gnd->ghn", queries, keys[:, :, 0]) / math.sqrt(DIM)
        if cache_seqlens is not None:
            scores = scores.masked_fill(torch.arange(keys.shape[1]) >= cache_seqlens.view(-1, 1, 1), -math.inf)
        weights = scores.exp()
        total = (weights * (1 if sizes is None else sizes[:, 0])).sum(-1, keepdim=True)
        out = weights @ values[:, :, 0]  # of clusters these are sums of values
        if previous_out is not None:
            out, total = out + previous_out * previous_lse.exp(), total + previous_lse.exp()
        return (out / total, total.log()) if return_softmax_lse else out / total

    code.batch_gemm_softmax, code.gather_copy_vectors, code.weighted_flash_decoding = softmax, gather, attend
    code.gather_copy_cluster_and_concat_fuse = concat
    cases, sinks, window = [], 4, 64
    for n, segment, clusters, seed in [(400, 8192, 2, 1), (700, 8192, 3, 2), (600, 200, 1, 3), (500, 250, 4, 4)]:
        config = module_of(folder / "config/config.py",
                           edits=[("os.path.abspath(os.path.join(os.path.dirname(__file__), '..'))", repr(str(folder))),
                                  ("context_len/8192", f"context_len/{segment}"), ("print(_config[attn_type])", "pass")])
        sizes = config.generate_config("Llama-3.1-8B-Instruct", n, "RetroInfer")["RetroInfer"]
        assert (sizes["static_pattern_start"], sizes["static_pattern_end"]) == (sinks, window)
        count = sizes["n_centroids"]
        keys, values, q = entries(n, seed)
        rows = lambda x: x[0, :, sinks:n - window].contiguous()
        mean = rows(keys).mean(1, keepdim=True)
        centroids, sums, members, held = kmeans.segment_k_means(rows(keys) - mean, rows(values), count, num_segments=sizes["n_segment"])
        order = [torch.cat([members[g, c, :held[g, c]] for c in range(count)]).long() for g in range(KV_HEADS)]
        lists = lambda x: torch.stack([rows(x)[g, order[g]] for g in range(KV_HEADS)])[None]
        steady = lambda x: torch.cat([x[:, :, :sinks], x[:, :, n - window:n], torch.zeros(1, KV_HEADS, 1, DIM)], 2)
        zone = min(round(count * sizes["estimation_budget"]), count - clusters)
        empty = lambda *shape: torch.zeros(KV_HEADS, *shape)
        wave = types.SimpleNamespace(
            steady_zone_keys=[steady(keys)], steady_zone_values=[steady(values)], new_key_states=keys[:, :, n:].transpose(1, 2),
            new_value_states=values[:, :, n:].transpose(1, 2), static_len_tensor=torch.tensor(0), centroids=[centroids + mean],
            value_sum=[sums], cluster_size=[held.float()], centroids_mask=[held == 0], list_keys=[lists(keys)], list_values=[lists(values)],
            cluster_size_cumsum=[held.cumsum(-1)], gemm_o=None, norm=None, sum=None, softmax_o=empty(GROUP, count), batch_groups=KV_HEADS,
            group_size=GROUP, n_centroids=count, head_dim=DIM, RSQRT_DIM=1 / math.sqrt(DIM), DTYPE_MIN=torch.finfo(torch.float32).min,
            dist=empty(count), max_compute_cluster_num=zone + clusters, cV=empty(zone + clusters), cI=empty(zone + clusters).long(),
            es_cluster_num=zone, es_centroids=empty(zone, 1, DIM), es_value_sum=empty(zone, 1, DIM), es_cluster_size=empty(1, 1, zone),
            nprobe=clusters, nprobe_tensor=None, execution_buffer_keys=empty(n, 1, DIM), execution_buffer_values=empty(n, 1, DIM),
            valid_lengths=torch.zeros(KV_HEADS, dtype=torch.int32), static_stride=0, list_stride=0, execution_stride=0, batch_size=1,
            num_heads=Q_HEADS)
        out = code.retroinfer_cache_gpu.sparse_attention_gpu(wave, q.transpose(1, 2), 0, sinks + window + 1)
        cases.append(case({"name": "retroinfer", "segment": segment, "tokens": sinks + window + clusters * 16}, n, seed, out))
    return cases


def vattention(folder):
    sparse_attention_hub(folder / "sparse-attention-hub")
    from sparse_attention_hub.sparse_attention.research_attention import ResearchAttention, ResearchAttentionConfig
    from sparse_attention_hub.sparse_attention.research_attention.maskers import fixed, sampling
    from sparse_attention_hub.sparse_attention.research_attention.maskers.sampling.implementations import adaptive_sampling

    cases, sampled = [], adaptive_sampling.create_sampling_mask_with_per_head_budget
    for n, sinks, window, heavy, base, epsilon, delta, seed in [
            (400, 8, 16, 0.05, 0.1, 0.25, 0.25, 1), (300, 4, 32, 0.02, 0.05, 0.1, 0.05, 2), (600, 1, 1, 0.01, 0.02, 0.4, 0.3, 3),
            (90, 16, 24, 0.1, 0.1, 0.05, 0.05, 4)]:
        keys, values, q = entries(n, seed)
        counts, taken = [], [0] * Q_HEADS  # of draws: wanted now, made before

        def randint(low, high, size, **_):
            rows = []
            for head, count in enumerate(counts or [size[-1]] * Q_HEADS):
                draws = uniform(0, f"vattention 0 {head} {n}", taken[head] + count)[taken[head]:]
                rows.append(low + torch.tensor((draws * (high - low)).astype(np.int64)))
                taken[head] += count
            return torch.cat(rows).view(*size)

        def sample(budgets, *arguments, **named):
            counts[:] = budgets.flatten().tolist()
            return sampled(budgets, *arguments, **named)

        adaptive_sampling.create_sampling_mask_with_per_head_budget, usual, torch.randint = sample, torch.randint, randint
        attention = ResearchAttention.create_from_config(ResearchAttentionConfig(masker_configs=[
            fixed.SinkMaskerConfig(sink_size=sinks), fixed.LocalMaskerConfig(window_size=window), fixed.OracleTopKConfig(heavy_size=heavy),
            adaptive_sampling.AdaptiveSamplingMaskerConfig(base_rate_sampling=base, epsilon=epsilon, delta=delta, init_offset=sinks,
                                                           local_offset=window)]))
        out, _ = attention.custom_attention(types.SimpleNamespace(training=False), q, keys, values, None, 1 / math.sqrt(DIM), 0.0, {},
                                            layer_idx=0)
        torch.randint = usual
        print("vattention:", n, "entries,", counts, "draws")
        cases.append(case({"name": "vattention", "sinks": sinks, "window": window, "heavy": heavy, "base": base, "epsilon": epsilon,
                           "delta": delta}, n, seed, out))
    return cases


if __name__ == "__main__":
    clones = pathlib.Path(sys.argv[1])
    made_by = "tests/golden/weighted_retrieval.py, torch " + torch.__version__
    for part in (magicpig, sparq, retroinfer, vattention):
        if sys.argv[2:] and part.__name__ not in sys.argv[2:]:
            continue
        write(__file__, part.__name__, {"made_by": made_by, "cases": part(clones)})
