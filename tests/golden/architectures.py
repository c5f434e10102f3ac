"""Logits of a tiny random checkpoint of every architecture by the transformers library, for
tests/harness/model/architectures_test.cpp.

    pip install torch transformers safetensors numpy
    python tests/golden/architectures.py tests/golden/architectures [CASE..]

Written for torch 2.11, transformers 5.23 (Qwen3-Next and Qwen3.5: 5.2). A checkpoint's weights are a formula of seed,
tensor name and element number (tests/support/random_checkpoint.h has the same one), so a fixture holds the config, names
and shapes, tokens and logits only. Each model is saved in the library's own layout and loaded back from it, then reads a
prompt in one pass and the following tokens one by one; then it reads the prompt again and goes on by its own likeliest
tokens.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

SEED = 1
VOCAB = 128
GREEDY = 32
PROMPT, STEPS = 40, 6  # past the original windows of 32 and the sliding windows of 16 below

BASE = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0,
            tie_word_embeddings=False, hidden_act="silu", bos_token_id=0, eos_token_id=1, pad_token_id=None)
EXPERTS = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32)
LATENT = dict(kv_lora_rank=48, q_lora_rank=None, qk_nope_head_dim=24, qk_rope_head_dim=16, v_head_dim=20,
              num_key_value_heads=4, head_dim=16, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
              n_shared_experts=2, first_k_dense_replace=1, num_hidden_layers=3)
GEMMA = dict(hidden_act=None, sliding_window=16, query_pre_attn_scalar=24, tie_word_embeddings=True, rope_theta=1e6,
             rope_local_base_freq=1e4)
EXPERTS_OF_ONE_SIZE = dict(num_local_experts=4, num_experts_per_tok=2)
GPT_OSS = dict(EXPERTS_OF_ONE_SIZE, hidden_size=64, intermediate_size=32, num_hidden_layers=3, sliding_window=16,
               attention_bias=True, rope_scaling={"rope_type": "yarn", "factor": 4.0, "truncate": False,
                                                  "original_max_position_embeddings": 32})
PHI = dict(hidden_size=64, max_position_embeddings=256, sliding_window=None)
LLAMA4 = dict(num_local_experts=4, num_experts_per_tok=1, intermediate_size_mlp=80, num_hidden_layers=4,
              rope_theta=500000.0)
DELTA = dict(head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
             linear_value_head_dim=24, shared_expert_intermediate_size=24, **EXPERTS)
MSCALE = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32, "beta_slow": 1,
          "mscale": 0.707, "mscale_all_dim": 0.707}

CASES = {
    "llama2": ("llama", dict(num_key_value_heads=4)),
    "yi": ("llama", dict(num_key_value_heads=1, rope_theta=5e6, tie_word_embeddings=True)),
    "llama_biased": ("llama", dict(attention_bias=True, mlp_bias=True)),
    "longchat_linear": ("llama", dict(rope_scaling={"rope_type": "linear", "factor": 8.0})),
    "llama_dynamic": ("llama", dict(max_position_embeddings=32, rope_scaling={"rope_type": "dynamic", "factor": 4.0})),
    "llama31": ("llama", dict(rope_theta=500000.0, rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32})),
    "llama_yarn": ("llama", dict(rope_scaling={"rope_type": "yarn", "factor": 4.0,
                                               "original_max_position_embeddings": 32})),
    "mistral": ("mistral", dict(sliding_window=16)),
    "mistral_small": ("mistral", dict(sliding_window=None, head_dim=32, rope_theta=1e8)),
    "qwen2": ("qwen2", dict(tie_word_embeddings=True, rope_theta=1e6)),
    "qwen2_sliding": ("qwen2", dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=16,
                                    max_window_layers=1)),
    "qwen3": ("qwen3", dict(head_dim=32, rope_theta=1e6, tie_word_embeddings=True)),
    "qwen3_moe": ("qwen3_moe", dict(norm_topk_prob=True, **EXPERTS)),
    "qwen3_moe_mixed": ("qwen3_moe", dict(norm_topk_prob=False, decoder_sparse_step=2, mlp_only_layers=[3],
                                          num_hidden_layers=4, **EXPERTS)),
    "deepseek_v2_lite": ("deepseek_v2", dict(LATENT, topk_method="greedy", n_group=1, topk_group=1,
                                             routed_scaling_factor=1.0, norm_topk_prob=False)),
    "deepseek_v2": ("deepseek_v2", dict(LATENT, q_lora_rank=40, topk_method="group_limited_greedy", n_group=4,
                                        topk_group=2, routed_scaling_factor=16.0, norm_topk_prob=False,
                                        rope_scaling=dict(MSCALE, mscale=1.0))),
    "deepseek_v3": ("deepseek_v3", dict(LATENT, q_lora_rank=40, n_group=4, topk_group=2, routed_scaling_factor=2.5,
                                        norm_topk_prob=True, rope_scaling=dict(MSCALE, mscale=1.0,
                                                                               mscale_all_dim=1.0))),
    "deepseek_v3_flat": ("deepseek_v3", dict(LATENT, n_group=1, topk_group=1, routed_scaling_factor=1.0,
                                             norm_topk_prob=False, rope_interleave=False)),
    "gemma3": ("gemma3_text", dict(GEMMA, num_hidden_layers=7, num_key_value_heads=1, query_pre_attn_scalar=16)),
    "gemma3_linear": ("gemma3_text", dict(GEMMA, num_hidden_layers=3, head_dim=32, final_logit_softcapping=5.0,
                                          layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                          rope_scaling={"rope_type": "linear", "factor": 8.0})),
    "gpt_oss": ("gpt_oss", GPT_OSS),
    "gpt_oss_mxfp4": ("gpt_oss", GPT_OSS),
    "phi3": ("phi3", dict(PHI, sliding_window=16)),
    "phi3_crossing": ("phi3", dict(PHI, original_max_position_embeddings=PROMPT + 3, rope_scaling={
        "rope_type": "longrope", "short_factor": [1.0 + 0.05 * i for i in range(8)],
        "long_factor": [1.0 + 0.5 * i for i in range(8)]})),
    "phi4_mini": ("phi3", dict(PHI, hidden_size=128, head_dim=32, original_max_position_embeddings=32,
                               partial_rotary_factor=0.75, tie_word_embeddings=True, rope_scaling={
                                   "rope_type": "longrope", "short_factor": [1.0] * 12,
                                   "long_factor": [1.0 + 0.25 * i for i in range(12)]})),
    "glm4": ("glm4", dict(head_dim=32, attention_bias=True)),
    "granite": ("granite", dict(embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.4,
                                logits_scaling=8.0, tie_word_embeddings=True)),
    "mixtral": ("mixtral", dict(EXPERTS_OF_ONE_SIZE, sliding_window=None, rope_theta=1e6)),
    "smollm3": ("smollm3", dict(num_hidden_layers=4, rope_theta=2e6, tie_word_embeddings=True)),
    "olmo2": ("olmo2", dict(rope_theta=500000.0)),
    "llama4": ("llama4_text", dict(LLAMA4, attention_chunk_size=16, floor_scale=8, attn_scale=0.5)),
    "llama4_mixed": ("llama4_text", dict(LLAMA4, use_qk_norm=False, interleave_moe_layer_step=2, rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32})),
    "qwen3_next": ("qwen3_next", dict(DELTA, num_hidden_layers=4)),
    "qwen3_next_mixed": ("qwen3_next", dict(DELTA, num_hidden_layers=5, norm_topk_prob=False, mlp_only_layers=[1],
                                            linear_num_value_heads=2, linear_conv_kernel_dim=3, layer_types=[
                                                "linear_attention", "full_attention", "linear_attention",
                                                "linear_attention", "full_attention"])),
    "qwen3_5": ("qwen3_5_text", dict(DELTA, num_hidden_layers=4, tie_word_embeddings=True, rope_theta=1e6)),
    "qwen3_5_moe": ("qwen3_5_moe_text", dict(DELTA, num_hidden_layers=8, full_attention_interval=4)),
}

MASK = (1 << 64) - 1


def mix(x):
    x = (x + np.uint64(0x9E3779B97F4A7C15))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(seed, purpose, count):
    """Draws 0 .. count-1 of harness/core/random.h (random_stream.py describes it)."""
    with np.errstate(over="ignore"):
        key = mix(np.array([seed], np.uint64))
        for c in purpose.encode():
            key = mix(key ^ np.uint64(c))
        bits = mix(key ^ mix(np.arange(count, dtype=np.uint64)))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def weight(name, shape):
    u = uniform(SEED, name, int(np.prod(shape)))
    if name.endswith("bias"):
        values = 0.4 * (2 * u - 1)
    elif name.endswith("A_log"):  # so that states last
        values = 4 * u - 5
    elif len(shape) == 1:
        values = 0.8 + 0.4 * u
    else:
        sharp = any(part in name for part in ("q_proj", "k_proj", "q_b_proj", "qkv_proj"))
        values = (6.0 if sharp else 2.0) / np.sqrt(shape[1]) * (2 * u - 1)
    return torch.from_numpy(values.astype(np.float32).reshape(shape))


def packed(name, shape):
    """Bytes of MXFP4: two numbers each, or exponents."""
    u = uniform(SEED, name, int(np.prod(shape)))
    values = 122 + np.floor(4 * u) if name.endswith("_scales") else np.floor(256 * u)
    return torch.from_numpy(values.astype(np.uint8).reshape(shape))


def pack_experts(weights, shapes):
    """Replaces experts' matrices by random ones that MXFP4 holds."""
    for name, (experts, inputs, outputs) in [(n, s) for n, s in shapes.items() if n.endswith(("up_proj", "down_proj"))]:
        del shapes[name]
        shapes[name + "_blocks"] = [experts, outputs, inputs // 32, 16]
        shapes[name + "_scales"] = [experts, outputs, inputs // 32]
        parts = [packed(name + part, shapes[name + part]) for part in ("_blocks", "_scales")]
        weights[name] = convert_moe_packed_tensors(*parts, dtype=torch.float32)


def build(kind, changes, mxfp4):
    """The model with formula weights, its config and its tensors' shapes, all as the library stores them."""
    config = transformers.AutoConfig.for_model(kind, **(BASE | changes))
    config._attn_implementation = "eager"
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(path)
        with safe_open(path / "model.safetensors", framework="pt") as file:
            shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}
        weights = {name: weight(name, shape) for name, shape in shapes.items()}
        if mxfp4:
            pack_experts(weights, shapes)
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, path / "model.safetensors",
                  metadata={"format": "pt"})
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32,
                                                                  attn_implementation="eager").eval()
        described = json.loads((path / "config.json").read_text())
        if mxfp4:
            described["quantization_config"] = {"quant_method": "mxfp4"}
        return model, described, shapes


def greedy(model, prompt):
    """The likeliest tokens behind a prompt, and how far the nearest other one ever was behind."""
    tokens, margin, fed, cache = [], float("inf"), prompt, None
    for _ in range(GREEDY):
        seen = model(torch.tensor([fed]), past_key_values=cache, use_cache=True)
        best = seen.logits[0, -1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        tokens.append(best.indices[0].item())
        fed, cache = tokens[-1:], seen.past_key_values
    return tokens, margin


def short(row):
    return [float(f"{x:.7g}") for x in row.tolist()]


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(exist_ok=True)
    draws = uniform(SEED, "tokens", PROMPT + STEPS)
    tokens = [int(u * VOCAB) for u in draws]
    for name, (kind, changes) in CASES.items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        model, config, shapes = build(kind, changes, name.endswith("mxfp4"))
        rows = {}
        with torch.no_grad():
            seen = model(torch.tensor([tokens[:PROMPT]]), use_cache=True)
            for position in (0, 1, 17, 33, PROMPT - 1):
                rows[position] = short(seen.logits[0, position])
            for position in range(PROMPT, PROMPT + STEPS):
                seen = model(torch.tensor([[tokens[position]]]), past_key_values=seen.past_key_values, use_cache=True)
                rows[position] = short(seen.logits[0, -1])
            likeliest, margin = greedy(model, tokens[:PROMPT])
        config.pop("transformers_version", None)
        text = json.dumps({"made_by": f"transformers {transformers.__version__}", "seed": SEED, "config": config,
                           "tensors": shapes, "prompt": tokens[:PROMPT], "next": tokens[PROMPT:], "greedy": likeliest, "rows": rows})
        (out / f"{name}.json").write_text(text.replace('], "', '],\n"') + "\n")
        print(name, len(text), max(abs(v) for v in rows[PROMPT - 1]), margin)


main()
