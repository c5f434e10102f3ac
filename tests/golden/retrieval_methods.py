"""Entries selected by retrieval methods, by their authors' code, for tests/methods/retrieval/*_test.cpp.

    pip install torch transformers scikit-learn
    git clone https://github.com/hpcgroup/loki && git clone https://github.com/andy-yang-1/DoubleSparse
    git clone https://github.com/mit-han-lab/Quest
    git clone https://github.com/sjtu-zhao-lab/ClusterKV && git clone https://github.com/bytedance/ShadowKV
    git clone https://github.com/HugoZHL/PQCache && git clone https://github.com/NVlabs/RocketKV
    git clone https://github.com/MoonshotAI/MoBA && git clone https://github.com/DerrickYLJ/LessIsMore
    git clone https://github.com/xAlg-ai/sparse-attention-hub && git clone https://github.com/microsoft/SeerAttention
    python tests/golden/retrieval_methods.py FOLDER_OF_CLONES [METHOD...]

Writes retrieval_methods/NAME.json. Keys and queries are drawn by harness/core/random.h's rule, so the test holds the
same: 4 query heads over 2 kv heads of 16 channels, float32, no rotation. A case names settings and holds the selected
positions of each query head or kv head. Where the authors' code does not force the newest entry, the draws are the
first whose selection holds it for every head, so that forcing it changes nothing.

Run as they are: Quest's forward; loki's mask_attn_pca_topk with scikit-learn's PCA, as its pca.py takes it; Double
Sparsity's LlamaAttention_heavy_hitter with the ranking of its get_k_hook; ClusterKV's build_cluster and
cluster_attn_out, with RAFT's k-means replaced by the known centroids of separate clusters and its CUDA index search by
the plain loop beside it; PQCache's decoding_attn_GQA_euc in float32, with the known centroids of separate clusters;
ShadowKV's ShadowKVCache on the CPU, with the square root of its 128 channels replaced by
that of 16; RocketKV's rocket_forward over a prompt and a step, with the settings that its compress() makes of a budget
without room for new tokens; MoBA's moba_attn_varlen_naive; LessIsMore's qwen_tidal_attention_forward in a layer that
chooses; sparse-attention-hub's HashAttentionTopKMasker behind its sinks and window, with networks drawn by our rule in the
form of HashAttention's own checkpoints, which its converter reads; SeerAttention-R's AttnGate over a prompt and steps, with
drawn weights, whose kernel attends to the first block too. RocketKV's pooled votes and the entries of its chunks
tie, as do HashAttention's scores: of equals the lower index is taken, which the library leaves open. Written for torch 2.11, transformers 5.23, scikit-learn 1.9; the last three for torch 2.15, transformers
5.2; Quest 01c1623, loki 005913b, DoubleSparse b0575e6, ClusterKV cb66a22, ShadowKV a21f5a9, PQCache 0b74e12, RocketKV
63637c8, MoBA 61e456b, LessIsMore 6753bf7, sparse-attention-hub 1a048c9,
SeerAttention aba03e3.
"""

import ast
import json
import math
import pathlib
import sys
import tempfile
import types

import numpy as np
import torch
from authors_code import module_of, sparse_attention_hub
from by_method import write
from random_stream import uniform

Q_HEADS, KV_HEADS, DIM = 4, 2, 16
GROUP = Q_HEADS // KV_HEADS


def floats(count, purpose, seed):
    """tests/support/random_entries.h."""
    return torch.tensor((2 * uniform(seed, purpose, count) - 1).astype(np.float32))


def entries(n, seed):
    """Keys [1, kv_heads, n + 1, dim] of a prompt of n entries and one more, and a query [1, q_heads, 1, dim]. The newest
    key is the mean of its queries, so that they attend to it."""
    q = floats(Q_HEADS * DIM, "q", seed).view(1, Q_HEADS, 1, DIM)
    prompt = floats(n * KV_HEADS * DIM, "keys", seed).view(n, KV_HEADS, DIM)
    newest = q.view(KV_HEADS, GROUP, DIM).mean(1).unsqueeze(0)
    return torch.cat([prompt, newest]).transpose(0, 1).unsqueeze(0).contiguous(), q


def repeated(keys):
    return keys.repeat_interleave(GROUP, dim=1)


def first_with_newest(make):
    """The first seed whose selections hold the newest entry for every head."""
    for seed in range(1, 2000):
        lists, n = make(seed)
        if all(n in head for head in lists):
            return seed, lists
    raise SystemExit("no seed")


def loki(folder):
    from sklearn.decomposition import PCA
    methods = types.ModuleType("methods")
    methods.LOGGER = None
    sys.modules["methods"] = methods
    code = module_of(folder / "loki/methods/pca_topk/utils.py", stubs=["networkx"])
    cases = []
    for n, rank, top in [(100, 4, 20), (100, 16, 20), (61, 8, 9)]:

        def select(seed):
            keys, q = entries(n, seed)
            basis = torch.stack([torch.tensor(PCA().fit(keys[0, h, :n].double().numpy()).components_)
                                 for h in range(KV_HEADS)]).float().transpose(1, 2).unsqueeze(0)
            full = repeated(basis)
            weights = torch.matmul(q, repeated(keys).transpose(2, 3)) / math.sqrt(DIM)
            mask, _ = code.mask_attn_pca_topk(types.SimpleNamespace(), 0, weights, None, q, repeated(keys), full,
                                              full[..., :rank], rank, top)
            return [torch.nonzero(mask[0, h, 0] > -math.inf).flatten().tolist() for h in range(Q_HEADS)], n

        seed, lists = first_with_newest(select)
        cases.append({"method": {"name": "loki", "basis": "prompt", "rank_share": rank / DIM, "tokens": top}, "n": n,
                      "seed": seed, "selected": lists})
    return cases


def double_sparsity(folder):
    code = module_of(folder / "DoubleSparse/evaluation/modify_llama.py")
    source = (folder / "DoubleSparse/config/offline_calibration.py").read_text()
    hook = next(f for f in ast.parse(source).body if getattr(f, "name", "") == "get_k_hook")
    scope = {}
    exec(compile(ast.Module([hook], []), "offline_calibration.py", "exec"), scope)
    cases = []
    for n, factor, bits, heavy in [(100, 2, 4, 16), (100, 4, 8, 16), (70, 2, 16, 12), (100, 1, 4, 16)]:

        def select(seed):
            keys, q = entries(n, seed)
            config = code.LlamaConfig(hidden_size=Q_HEADS * DIM, num_attention_heads=Q_HEADS,
                                      num_key_value_heads=KV_HEADS)
            config.pretraining_tp, config.rope_theta = 1, 10000.0
            magnitudes = {}
            scope["get_k_hook"](None, None, keys[:, :, :n].transpose(1, 2).reshape(1, n, KV_HEADS * DIM), "k",
                                magnitudes, types.SimpleNamespace(config=config))
            channels = torch.sort(magnitudes["k"], dim=-1, descending=True).indices
            layer = code.LlamaAttention_heavy_hitter(config, 2)
            layer.heavy_const, layer.group_factor, layer.label_bits = heavy, factor, bits
            layer.sorted_channel = channels.repeat_interleave(GROUP, dim=0)
            layer.q_proj.weight.data = torch.eye(Q_HEADS * DIM)
            cache = types.SimpleNamespace(update=lambda k, v, layer, kwargs: (keys, keys))
            seen = []
            plain = torch.nn.functional.softmax
            code.nn.functional.softmax = lambda x, **kw: (seen.append(x), plain(x, **kw))[1]
            with torch.no_grad():
                layer(q.view(1, 1, -1), past_key_value=cache,
                      attention_mask=torch.zeros(1, 1, 1, n + 1),
                      position_embeddings=(torch.ones(1, 1, DIM), torch.zeros(1, 1, DIM)))
            code.nn.functional.softmax = plain
            return [torch.nonzero(seen[0][0, h, 0] > -math.inf).flatten().tolist() for h in range(Q_HEADS)], n

        seed, lists = first_with_newest(select)
        cases.append({"method": {"name": "double_sparsity", "ranking": "prompt", "group_factor": factor,
                                 "label_bits": bits, "tokens": heavy, "dense_layers": 0}, "n": n, "seed": seed,
                      "selected": lists})
    return cases


def quest(folder):
    code = module_of(folder / "Quest/evaluation/quest_attention.py")
    code.apply_rotary_pos_emb = lambda q, k, *_: (q, k)
    cases = []
    for n, budget in [(206, 112), (158, 96), (302, 160)]:

        def select(seed):
            keys, q = entries(n, seed)
            newest = keys[:, :, n].reshape(1, 1, -1)
            layer = types.SimpleNamespace(layer_id=2, num_heads=Q_HEADS, num_key_value_heads=KV_HEADS, head_dim=DIM,
                                          num_key_value_groups=GROUP, hidden_size=Q_HEADS * DIM, chunk_size=16,
                                          token_budget=budget, q_proj=lambda _: q.view(1, 1, -1),
                                          k_proj=lambda _: newest, v_proj=lambda _: newest, o_proj=lambda x: x,
                                          rotary_emb=lambda *_: (None, None))
            seen = []
            plain = torch.nn.functional.softmax
            code.nn.functional.softmax = lambda x, **kw: (seen.append(x), plain(x, **kw))[1]
            code.forward(layer, torch.zeros(1, 1, 1), position_ids=torch.tensor([[n]]),
                         past_key_value=(keys[:, :, :n], keys[:, :, :n]))
            code.nn.functional.softmax = plain
            least = torch.finfo(torch.float32).min
            return [torch.nonzero(seen[0][0, h, 0] > least).flatten().tolist() for h in range(Q_HEADS)], n

        seed, lists = first_with_newest(select)
        cases.append({"method": {"name": "quest", "tokens": budget, "gqa": "none", "dense_layers": 0}, "n": n,
                      "seed": seed, "selected": lists})
    return cases


def cluster_entries(n, clusters, seed):
    """Keys around `clusters` directions, of several lengths; entry i belongs to cluster (i i / 3) % clusters."""
    directions = floats(clusters * KV_HEADS * DIM, "directions", seed).view(clusters, KV_HEADS, DIM)
    noise = floats(n * KV_HEADS * DIM, "keys", seed).view(n, KV_HEADS, DIM)
    owner = torch.tensor([i * i // 3 % clusters for i in range(n)])
    return (directions[owner] + 0.02 * noise).transpose(0, 1).unsqueeze(0).contiguous(), owner


def clusterkv(folder):
    stubs = ["pylibraft", "pylibraft.cluster", "pylibraft.neighbors", "pylibraft.config", "rmm", "clusterkv",
             "clusterkv._clusterkv_knl", "accuracy", "accuracy.cluster_cache_simulator"]
    code = module_of(folder / "ClusterKV/accuracy/cluster_attention.py", stubs,
                     edits=[("use_search_kernel = True", "use_search_kernel = False"),
                            ("from .cluster_cache_simulator", "from accuracy.cluster_cache_simulator"),
                            ("pylibraft.config.set_output_as", "(lambda *_: None)")])
    cases = []
    for n, clusters, sink, budget, seed in [(120, 8, 16, 50, 1), (200, 12, 4, 60, 2), (90, 5, 0, 33, 3)]:
        keys, owner = cluster_entries(n, clusters, seed)
        present = sorted(set(owner[sink:].tolist()))

        def fit(_params, rows):
            means = [rows[(owner[sink:] == c)].mean(0) for c in present]
            return torch.stack(means), None, None

        code.fit = fit
        index = code.build_cluster(keys[:, :, sink:], len(present), False, None, GROUP, None)
        q = floats(Q_HEADS * DIM, "q", seed).view(1, Q_HEADS, 1, DIM)
        taken = []
        plain = torch.Tensor.gather
        rows = repeated(keys)

        def gather(self, dim, index):
            if self is rows:
                taken.append(index[0, :, :, 0])
            return plain(self, dim, index)

        torch.Tensor.gather = gather
        centroids, key_indices, _, sizes, ends = index
        code.cluster_attn_out(q, rows, rows.clone(), None, n, centroids, key_indices, sizes, ends, GROUP, 2, budget,
                              sink, "truc", None)
        torch.Tensor.gather = plain
        cases.append({"method": {"name": "clusterkv", "clusters": len(present), "sinks": sink, "tokens": budget,
                                 "dense_layers": 0}, "n": n, "directions": clusters, "seed": seed,
                      "selected": [sorted(list(range(sink)) + head.tolist()) for head in taken[0]]})
    return cases


def pqcache(folder):
    folder = folder / "PQCache/vq_method"
    module_name = "pq_parts"
    package = types.ModuleType(module_name)
    package.__dict__.update({k: v for k, v in vars(module_of(folder / "retrieval_based/retrieval_based_compressor.py")).items()
                             if k in ("repeat", "unrepeat", "RetrievalBasedCompressor")})
    sys.modules[module_name] = package
    code = module_of(folder / "retrieval_based/pq_search.py",
                     ["kmeans_gpu", "flash_attn", "loguru", "sparq", "sparq.methods", "sparq.methods.ann_attention", "multi", "manager",
                      "timer"],
                     edits=[(".retrieval_based_compressor", module_name), (".sparq_official.methods.ann_attention", "sparq.methods.ann_attention"),
                            (".multi_core_compressor_v2", "multi"), (".cache_manager", "manager"), (".global_timer", "timer"),
                            ("to(torch.float16)", "to(torch.float32)")])
    cases = []
    for n, bits, sinks, topk, recent, seed in [(64, 3, 4, 16, 15, 1), (200, 4, 0, 30, 29, 2), (150, 4, 8, 10, 9, 3)]:
        centres = floats(2**bits * KV_HEADS * DIM, "directions", seed).view(2**bits, KV_HEADS, 2, DIM // 2)
        noise = floats(n * KV_HEADS * DIM, "keys", seed).view(n, KV_HEADS, 2, DIM // 2)
        owner = torch.tensor([[i % 2**bits, (i // 2**bits + i) % 2**bits] for i in range(n)])  # [n, parts], no pair twice
        keys = centres[owner[:, :1].expand(-1, KV_HEADS), torch.arange(KV_HEADS), 0].unsqueeze(2).expand(-1, -1, 2, -1).clone()
        keys[:, :, 1] = centres[owner[:, 1:].expand(-1, KV_HEADS), torch.arange(KV_HEADS), 1]
        keys = keys + 0.02 * noise  # [n, kv_heads, parts, DIM / 2]
        means = torch.stack([torch.stack([keys[sinks:, :, part][owner[sinks:, part] == c].mean(0) for c in range(2**bits)])
                             for part in range(2)])  # [parts, centroids, kv_heads, DIM / 2]
        q = floats(Q_HEADS * DIM, "q", seed).view(1, Q_HEADS, 1, DIM)
        own = q.view(1, KV_HEADS, GROUP, 1, DIM).mean(2)
        taken = []
        codes = owner[sinks:].unsqueeze(1).expand(-1, KV_HEADS, -1)  # [entries, kv_heads, parts]
        cache = types.SimpleNamespace(
            fetch_and_concat_kv_w_cache=lambda chosen, layer: (
                taken.append(chosen), (torch.zeros(1, KV_HEADS, sinks + recent + topk + 1, DIM),) * 2)[1],
            add_new_token=lambda *_: None)
        code.cache_managers, code.flash_attn_func = [cache], lambda q, *_, **__: q
        layer = types.SimpleNamespace(
            code_book=codes[None], centroids=means.permute(2, 0, 1, 3)[None], gpu_centroids=means.permute(2, 0, 1, 3)[None],
            gpu_code_book=codes.permute(1, 2, 0)[None], past_token_cnt=n, recent_size=recent, sink_size=sinks, topk_size=topk,
            layer_idx=1, all_layer_cnt=2, km_done=True, rank=0, valid_n_xb=-1,
            prefetch_event=types.SimpleNamespace(wait=lambda: None))
        code.PqBasedSearchCompressor.decoding_attn_GQA_euc(layer, GROUP, q, repeated(own), repeated(own))
        cases.append({"method": {"name": "pqcache", "bits": bits, "sinks": sinks, "tokens": sinks + topk + recent + 1},
                      "n": n, "seed": seed,
                      "selected": [sorted([*range(sinks), *(sinks + i for i in head.tolist()), *range(n - recent, n + 1)])
                                   for head in taken[0]]})
    return cases


def shadowkv(folder):
    torch.cuda.Stream = lambda *_: None
    code = module_of(folder / "ShadowKV/models/kv_cache.py", ["models", "models.tensor_op", "kernels"],
                     edits=[("math.sqrt(128)", "math.sqrt(self.head_dim)")])
    cases = []
    for n, budget, rank, outliers, seed in [(203, 40, 8, 3, 1), (256, 64, 32, 5, 2), (150, 24, 20, 0, 3)]:
        keys, q = entries(n, seed)
        keys = keys[:, :, :n]
        config = types.SimpleNamespace(num_attention_heads=Q_HEADS, num_key_value_heads=KV_HEADS,
                                       hidden_size=Q_HEADS * DIM, num_hidden_layers=1)
        cache = code.ShadowKVCache(config, 1, n, "cpu", torch.float32, budget, 8, rank)
        cache.outlier_chunk = outliers
        cache.get_svd(keys, 0)
        cache.prefill_kv_cache(keys, 0, keys)
        positions = cache.get_retrieval_position_ids(0, q)
        restored = cache.get_key_cache(0, positions, lambda x, _: x, None)
        middle = slice(cache.sparse_start, cache.sparse_end)
        kept = []
        for head in range(KV_HEADS):
            rest = set(cache.k_landmark_idx[0, 0, head].tolist())
            exact = [c for c in range(cache.chunks) if c not in rest]
            kept.append([p for c in exact for p in range(8 * c, 8 * c + 8)] + list(range(8 * cache.chunks, n)))
        order = positions.argsort(-1)
        keys_by_position = torch.gather(restored[:, :, middle], 2, order.unsqueeze(-1).expand(-1, -1, -1, DIM))
        cases.append({"method": {"name": "shadowkv", "tokens": budget, "rank": rank, "outliers": outliers}, "n": n,
                      "seed": seed, "exact": kept, "selected": positions.sort(-1).values[0].tolist(),
                      "first_keys": [[round(x, 6) for x in keys_by_position[0, h, 0].tolist()]
                                     for h in range(KV_HEADS)]})
    return cases


def stable_topk(values, k, dim=-1, **_):
    found = values.sort(dim=dim, descending=True, stable=True)
    return torch.return_types.topk((found.values.narrow(dim, 0, k), found.indices.narrow(dim, 0, k)))


def rocketkv(folder):
    package = types.ModuleType("rocket_utils")
    package.repeat_kv = module_of(folder / "RocketKV/pipeline/inf_stream_llm/inf_llm/attention/utils.py").repeat_kv
    sys.modules["rocket_utils"] = package
    flash = types.ModuleType("flash_attn.flash_attn_interface")
    flash.flash_attn_func = lambda q, *_, **__: q
    sys.modules["flash_attn"], sys.modules["flash_attn.flash_attn_interface"] = types.ModuleType("flash_attn"), flash
    code = module_of(folder / "RocketKV/pipeline/inf_stream_llm/inf_llm/attention/rocket.py",
                     edits=[("from .utils", "from rocket_utils")])
    settings = module_of(folder / "RocketKV/pipeline/inf_stream_llm/infllm_utils.py",
                         ["eval", "eval.longbench_utils", "eval.longbench_utils.constants", "pipeline", "pipeline.model_utils", "inf_llm"])
    settings.patch_hf = lambda *_, **__: None
    cases, window = [], 32
    for n, budget in [(300, 64), (400, 16), (250, 128), (600, 32)]:
        params = {"method": "rocket", "token_budget": budget}
        config = types.SimpleNamespace(num_attention_heads=Q_HEADS, num_key_value_heads=KV_HEADS)
        settings.compress({}, params, n, 0, types.SimpleNamespace(config=config))
        assert params["window_size"] == window

        def select(seed):
            keys, q = entries(n, seed)
            last = floats(window * Q_HEADS * DIM, "window", seed)
            forward = code.rocket_forward(fattn=True, **params)
            layer = types.SimpleNamespace(layer_idx=0, config=types.SimpleNamespace(num_hidden_layers=1))

            def step(queries, key, past):
                flat = lambda x: x.transpose(1, 2).reshape(1, x.shape[2], -1)
                return forward(layer, torch.zeros(1, queries.shape[2], 1), torch.zeros(1, key.shape[2], 1), lambda a, b, **_: (a, b), True,
                               past, lambda _: flat(queries), lambda _: flat(key), lambda _: flat(key), lambda x: x, DIM,
                               Q_HEADS, KV_HEADS)

            prompt_q = torch.cat([torch.zeros(n - window, Q_HEADS, DIM), last.view(window, Q_HEADS, DIM)])
            plain, torch.Tensor.topk = torch.Tensor.topk, stable_topk
            _, held = step(prompt_q.transpose(0, 1)[None], keys[:, :, :n], None)
            torch.Tensor.topk = plain
            kept = [[(keys[0, h, :n] == row).all(-1).nonzero().item() for row in held[0][0, h]] for h in range(KV_HEADS)]
            taken, plain = [], torch.topk
            torch.topk = lambda *args, **kwargs: taken.append(stable_topk(*args, **kwargs)) or taken[-1]
            step(q, keys[:, :, n:], held)
            torch.topk = plain
            lists = [sorted((kept[h] + [n])[i] for i in taken[1].indices[0, h].flatten().tolist()) for h in range(KV_HEADS)]
            found.append(kept)
            return lists, n

        found = []
        seed, lists = first_with_newest(select)
        cases.append({"method": {"name": "rocketkv", "tokens": budget}, "n": n, "seed": seed, "window": window,
                      "kept": found[-1], "selected": lists})
    del sys.modules["flash_attn"], sys.modules["flash_attn.flash_attn_interface"]
    return cases


def moba(folder):
    code = module_of(folder / "MoBA/moba/moba_naive.py")
    cases = []
    for n, block, blocks in [(100, 16, 3), (127, 8, 5), (90, 32, 2)]:
        keys, q = entries(n, 1)
        rows, taken, plain = repeated(keys)[0].transpose(0, 1), [], torch.topk
        torch.topk = lambda *args, **kwargs: taken.append(plain(*args, **kwargs)) or taken[-1]
        queries = torch.cat([torch.zeros(n, Q_HEADS, DIM), q[0].transpose(0, 1)])
        code.moba_attn_varlen_naive(queries, rows, rows, torch.tensor([0, n + 1]), n + 1, block, blocks)
        torch.topk = plain
        chosen = taken[0].indices[:, -1].tolist()
        cases.append({"method": {"name": "moba", "block": block, "tokens": block * blocks}, "n": n, "seed": 1,
                      "selected": [sorted(i for b in row for i in range(b * block, min(b * block + block, n + 1))) for row in chosen]})
    return cases


def less_is_more(folder):
    code = module_of(folder / "LessIsMore/src/tidal_build/modify_qwen3_lim.py")
    cases = []
    for n, budget, sinks, ratio in [(100, 20, 4, 0.75), (150, 40, 4, 0.5), (80, 12, 0, 0.75), (90, 10, 4, 0.75)]:
        keys, q = entries(n, 1)
        same = lambda x: x
        layer = types.SimpleNamespace(
            head_dim=DIM, num_key_value_groups=GROUP, scaling=DIM**-0.5, layer_idx=2, training=False, attention_dropout=0.0,
            q_norm=same, k_norm=same, o_proj=same, q_proj=lambda _: q.transpose(1, 2).reshape(1, 1, -1),
            k_proj=lambda _: keys[:, :, n:].transpose(1, 2).reshape(1, 1, -1),
            v_proj=lambda _: keys[:, :, n:].transpose(1, 2).reshape(1, 1, -1))
        cache = types.SimpleNamespace(update=lambda *_: (keys, keys), get_seq_length=lambda _: n + 1)
        turn = (torch.ones(1, 1, DIM), torch.zeros(1, 1, DIM))
        code.qwen_tidal_attention_forward(layer, torch.zeros(1, 1, Q_HEADS * DIM), turn, None, cache, top_k=budget,
                                          sparse_layer_start=2, correction_layer=9, attention_sink=sinks, tidal_ratio=ratio)
        chosen = sorted(set(layer.pos_index[0, 0, 0].tolist()))
        cases.append({"method": {"name": "less_is_more", "tokens": budget, "sinks": sinks, "recent_share": 1 - ratio}, "n": n,
                      "seed": 1, "selected": chosen})
    return cases


def hashattention(folder):
    sparse_attention_hub(folder / "sparse-attention-hub")
    from sparse_attention_hub.sparse_attention.research_attention.maskers import fixed
    from sparse_attention_hub.sparse_attention.utils import Mask
    from sparse_attention_hub.sparse_attention.utils.hashattention_utils import convert_usa_weights_to_hash_attention

    def stable_topk(scores, k, dim, largest):
        return [part.narrow(dim, 0, k) for part in torch.sort(scores, dim=dim, descending=largest, stable=True)]

    cases, topk = [], torch.topk
    for n, sinks, window, heavy, sizes, seed in [(150, 4, 8, 20, (DIM, 12, 12, 32), 1), (120, 0, 1, 16, (DIM, 8, 40), 2),
                                                 (200, 16, 16, 10, (DIM, 64), 3)]:
        state = {}
        for side in "qk":
            for head in range(Q_HEADS):
                for i, (inner, out) in enumerate(zip(sizes, sizes[1:])):
                    name = f"0.learning_to_hash_transformation_{side}.{head}.{2 * i}."
                    state[name + "weight"] = floats(out * inner, name + "weight", seed).view(out, inner)
                    state[name + "bias"] = floats(out, name + "bias", seed)
        with tempfile.NamedTemporaryFile() as file:
            torch.save(state, file.name)
            weights = convert_usa_weights_to_hash_attention(file.name, 1, Q_HEADS, len(sizes) - 1)
        keys, q = entries(n, seed)
        maskers = [fixed.LocalMasker(fixed.LocalMaskerConfig(window_size=window)), fixed.HashAttentionTopKMasker(
            fixed.HashAttentionTopKMaskerConfig(heavy_size=heavy, hat_bits=sizes[-1], hat_mlp_layers=len(sizes) - 1,
                                                hat_mlp_hidden_size=sizes[1], hat_mlp_activation="silu", hat_weights=weights))]
        if sinks > 0:
            maskers.insert(0, fixed.SinkMasker(fixed.SinkMaskerConfig(sink_size=sinks)))
        mask, torch.topk = Mask.create_empty_mask((1, Q_HEADS, 1, n + 1), torch.float32, torch.device("cpu")), stable_topk
        for masker in maskers:
            mask = masker.add_mask(keys, q, keys, None, 1.0, 0.0, {}, mask, layer_idx=0)
        torch.topk = topk
        lists = [torch.nonzero(mask.get_dense_mask()[0, h, 0]).flatten().tolist() for h in range(Q_HEADS)]
        assert all(len(head) == sinks + window + heavy for head in lists)
        cases.append({"method": {"name": "hashattention", "sinks": sinks, "window": window, "tokens": sinks + window + heavy},
                      "sizes": sizes, "n": n, "seed": seed, "selected": lists})
    return cases


def seerattention_r(folder):
    folder, stubs = folder / "SeerAttention/seer_attn", ["flash_attn", "flash_attn.bert_padding", "flash_attn.layers",
                                                        "flash_attn.layers.rotary", "seer_attn", "seer_attn.modules",
                                                        "seer_attn.kernels", "seer_attn.kernels.varlen",
                                                        "seer_attn.kernels.varlen.oracle_sparse"]
    common = module_of(folder / "modules/common.py", stubs)
    sys.modules["seer_attn.modules.common"] = common
    code = module_of(folder / "decode_sparse/attn_gate_inf.py", stubs)
    cache = module_of(folder / "decode_sparse/cache_utils.py",
                      edits=[("from transformers.cache_utils import Cache", "Cache = object")])
    inverse = 10000.0 ** (-torch.arange(DIM // 2, dtype=torch.float64) / (DIM // 2))

    def rotation(positions):
        angles = (positions.double()[:, None] * inverse).repeat(1, 2)[None]
        return angles.cos(), angles.sin()

    def unrotated(x, positions):  # [1, n, heads, dim]
        return common.apply_rotary_pos_emb_single(x.double(), *rotation(-positions), unsqueeze_dim=2)

    cases = []
    for n, steps, block, tokens, norms, seed in [(200, 40, 16, 64, True, 1), (128, 1, 16, 48, True, 2), (150, 30, 8, 40, False, 3),
                                                 (95, 65, 32, 70, True, 4)]:
        gate = code.ATTNGATE_CLASSES["Kmaxminavg"](block, DIM, DIM, KV_HEADS, Q_HEADS, "Qproj", False, norms).double()
        for name, weight in gate.named_parameters():
            weight.data = floats(weight.numel(), f"model.layers.0.self_attn.attn_gate.{name}", seed).double().view(weight.shape)
        blocks, everything = cache.KCompressionCache(1, block), torch.arange(n + steps)
        keys = torch.cat([floats(n * KV_HEADS * DIM, "keys", seed)] +
                         [floats(KV_HEADS * DIM, "more", seed + i) for i in range(steps)]).view(1, -1, KV_HEADS, DIM)
        keys, q = unrotated(keys, everything), floats(Q_HEADS * DIM, "q", seed).view(1, 1, Q_HEADS, DIM)
        gate(keys[:, :n], 0, blocks, max_cache_len=n, position_embeddings=rotation(everything[:n]),
             block_position_embeddings=rotation(everything[:n:block]))
        for at in range(n, n + steps):
            count = at // block + 1
            mask = gate(keys[:, at:at + 1], 0, blocks, unrotated(q, everything[at:at + 1]), torch.ones(1, 1, count, dtype=torch.bool),
                        max_cache_len=at + 1, position_embeddings=rotation(everything[at:at + 1]),
                        block_budget=tokens // block, sparsity_method="token_budget")
        mask[:, :, 0] = True
        lists = [[i for i in range(n + steps) if mask[0, head // GROUP, i // block]] for head in range(Q_HEADS)]
        cases.append({"method": {"name": "seerattention_r", "block": block, "tokens": tokens}, "n": n, "steps": steps, "norms": norms,
                      "seed": seed, "selected": lists})
    return cases


if __name__ == "__main__":
    clones = pathlib.Path(sys.argv[1])
    torch.manual_seed(0)
    made_by = "tests/golden/retrieval_methods.py, torch " + torch.__version__
    for part in (quest, loki, double_sparsity, clusterkv, pqcache, shadowkv, rocketkv, moba, less_is_more, hashattention, seerattention_r):
        if sys.argv[2:] and part.__name__ not in sys.argv[2:]:
            continue
        write(__file__, part.__name__, {"made_by": made_by, "cases": part(clones)})
