#!/usr/bin/env python3
"""Checkpoints in both formats, made by the formats' own libraries.

    python3 checkpoints.py OUTPUT_FOLDER

Packages: gguf 0.19.0, numpy 2.4.6, safetensors 0.8.0, tokenizers 0.23.3. Writes

  blocks.gguf, blocks.safetensors   every block type with random contents, and what gguf.dequantize makes of it
  blocks_split-00001-of-00003.gguf  and two more: the parts of blocks.gguf, split by the library
  tiny_llama/                       a Hugging Face folder: two shards, three element types, a byte-level tokenizer
  tiny_llama.gguf                   the same model as GGUF, query and key rows in the order of llama.cpp's converter
  tensor_names.json                 gguf's own table of Hugging Face and GGUF tensor names
"""
import json
import pathlib
import shutil
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SEED = 7
TYPES = [Q.F32, Q.F16, Q.BF16, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K]
TABLES = [Q.IQ4_NL, Q.IQ4_XS, Q.MXFP4]  # drawn apart, so that what is drawn behind the others stays as it is
# Where the f16 scales lie in a block, so that random bytes can be given finite ones.
SCALES = {Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q8_0: [0], Q.Q2_K: [80, 82], Q.Q3_K: [108],
          Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208], Q.IQ4_NL: [0], Q.IQ4_XS: [0], Q.MXFP4: []}
ROWS, COLUMNS = 3, 512


def random_blocks(draw, kind):
    if kind == Q.F32:
        return draw.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    if kind == Q.F16:  # all exponents but that of infinity, subnormals and both zeros too
        bits = draw.integers(0, 1 << 16, ROWS * COLUMNS).astype(np.uint16)
        bits[(bits & 0x7C00) == 0x7C00] &= 0x83FF
        return bits.reshape(ROWS, COLUMNS).view(np.float16)
    if kind == Q.BF16:
        bits = draw.integers(0, 1 << 16, ROWS * COLUMNS).astype(np.uint16)
        bits[(bits & 0x7F80) == 0x7F80] &= 0x807F
        return bits.view(np.uint8).reshape(ROWS, COLUMNS * 2)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = draw.integers(0, 256, (ROWS * COLUMNS // elements, size)).astype(np.uint8)
    for at in SCALES[kind]:
        scale = draw.standard_normal(len(blocks)).astype(np.float16)
        scale[0] = 6e-8  # a subnormal
        blocks[:, at:at + 2] = scale.view(np.uint8).reshape(-1, 2)
    if kind == Q.MXFP4:  # exponents from that of a subnormal to the largest whose numbers are finite
        blocks[:, 0] = np.linspace(0, 251, len(blocks))
    return blocks.reshape(ROWS, -1)


def write_blocks(out, draw):
    apart = np.random.default_rng(SEED + 1)
    kinds = {f"test.{kind.name.lower()}": kind for kind in TYPES + TABLES}
    blocks = {name: random_blocks(apart if kind in TABLES else draw, kind) for name, kind in kinds.items()}
    for file, tensors_of_a_part in (("blocks.gguf", 0), ("blocks_split.gguf", 6)):
        writer = gguf.GGUFWriter(out / file, "llama", split_max_tensors=tensors_of_a_part)
        writer.add_uint32("llama.attention.head_count", 1)
        for name, data in blocks.items():
            writer.add_tensor(name, data, raw_dtype=None if kinds[name] in (Q.F32, Q.F16) else kinds[name])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    expected = {name: gguf.dequantize(data.view(np.uint8) if kinds[name] == Q.BF16 else data, kinds[name])
                .reshape(ROWS, COLUMNS) for name, data in blocks.items()}
    save_file(expected, out / "blocks.safetensors", metadata={"made_by": "gguf 0.19.0", "seed": str(SEED)})


LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN = 2, 32, 4, 2, 8, 48


def train_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["<s>", "</s>", "<|user|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["the cat sat on the mat and the hat", "attention is a weighted sum of values"], trainer)
    return tokenizer


def model_tensors(draw, vocab):
    def weight(*shape):  # representable in bf16 and f16 alike: 7 bits of mantissa, small exponents
        return np.round(draw.uniform(-1, 1, shape) * 64).astype(np.float32) / 64

    tensors = {"model.embed_tokens.weight": weight(vocab, HIDDEN), "model.norm.weight": weight(HIDDEN),
               "lm_head.weight": weight(vocab, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        tensors |= {
            at + "input_layernorm.weight": weight(HIDDEN),
            at + "post_attention_layernorm.weight": weight(HIDDEN),
            at + "self_attn.q_proj.weight": weight(HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.k_proj.weight": weight(KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.v_proj.weight": weight(KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.o_proj.weight": weight(HIDDEN, HEADS * HEAD_DIM),
            at + "self_attn.q_proj.bias": weight(HEADS * HEAD_DIM),
            at + "mlp.gate_proj.weight": weight(FFN, HIDDEN),
            at + "mlp.up_proj.weight": weight(FFN, HIDDEN),
            at + "mlp.down_proj.weight": weight(HIDDEN, FFN),
        }
    return tensors


def write_safetensors_bf16(path, tensors):
    """safetensors' numpy side has no bf16: the header is written here, checked by its own reader in main()."""
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        if dtype == "BF16":
            raw = (array.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        else:
            raw = array.astype({"F32": np.float32, "F16": np.float16}[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_folder(out, tensors, tokenizer):
    folder = out / "tiny_llama"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[:11], "model-00002-of-00002.safetensors": names[11:]}
    for shard, members in shards.items():
        kinds = ["BF16", "F16", "F32"]
        write_safetensors_bf16(folder / shard, {n: (kinds[i % 3], tensors[n]) for i, n in enumerate(members)})
    (folder / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {"total_size": 0}, "weight_map": {n: s for s, members in shards.items() for n in members}}, indent=1))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 5000.0, "tie_word_embeddings": False,
        "attention_bias": False, "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16"}, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2]}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True,
        "chat_template": "{% for m in messages %}{{'<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n'}}{% endfor %}"}))
    tokenizer.save(str(folder / "tokenizer.json"))


def permuted(weights, heads):
    """The row order of llama.cpp's convert_hf_to_gguf.py for the llama architecture."""
    shape = weights.shape
    return weights.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape).copy()


def write_gguf(path, tensors, tokenizer):
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, LAYERS)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([token for token, _ in vocab])
    writer.add_token_types([3 if i < 3 else 1 for _, i in vocab])
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_eot_token_id(2)
    writer.add_add_bos_token(True)
    for name, data in tensors.items():
        if "q_proj" in name:
            data = permuted(data, HEADS)
        if "k_proj" in name:
            data = permuted(data, KV_HEADS)
        stem, ending = name.rsplit(".", 1)
        writer.add_tensor(f"{names.get_name(stem)}.{ending}", data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def name_table():
    """Pairs of names for every architecture that kvarena loads, restricted to the names Hugging Face models use."""
    used = ["model.embed_tokens", "model.norm", "lm_head"]
    in_layer = ["input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
                "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm", "mlp.gate_proj",
                "mlp.up_proj", "mlp.down_proj", "mlp.gate", "mlp.shared_experts.gate_proj",
                "mlp.shared_experts.up_proj", "mlp.shared_experts.down_proj", "self_attn.q_a_proj",
                "self_attn.q_a_layernorm", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa",
                "self_attn.kv_a_layernorm", "self_attn.kv_b_proj"]
    table = {}
    for arch in (gguf.MODEL_ARCH.LLAMA, gguf.MODEL_ARCH.QWEN2, gguf.MODEL_ARCH.QWEN3, gguf.MODEL_ARCH.QWEN3MOE,
                 gguf.MODEL_ARCH.DEEPSEEK2):
        names = gguf.get_tensor_name_map(arch, 13)
        for stem in used + [f"model.layers.{n}.{s}" for n in (0, 12) for s in in_layer]:
            found = names.get_name(stem)
            if found is not None:
                table[found + ".weight"] = stem + ".weight"
    return table


def gemma_table():
    """The same of a layer of Gemma 3, whose norms go by names that mean something else in other models."""
    in_layer = ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
                "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm",
                "self_attn.k_norm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3, 13)
    stems = ["model.embed_tokens", "model.norm"] + [f"model.layers.{n}.{s}" for n in (0, 12) for s in in_layer]
    return {names.get_name(stem) + ".weight": stem + ".weight" for stem in stems}


def family_tables():
    """The same of families that have names of their own."""
    usual = ["input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
             "self_attn.o_proj"]
    fused = ["input_layernorm", "post_attention_layernorm", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"]
    dense = ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
    families = {
        "gpt-oss": (gguf.MODEL_ARCH.GPT_OSS, usual + ["mlp.router"]),
        "phi3": (gguf.MODEL_ARCH.PHI3, fused + ["self_attn.qkv_proj"]),
        "glm4": (gguf.MODEL_ARCH.GLM4, fused + ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                                "post_self_attn_layernorm", "post_mlp_layernorm"]),
        "granite": (gguf.MODEL_ARCH.GRANITE, usual + dense),
        "smollm3": (gguf.MODEL_ARCH.SMOLLM3, usual + dense),
        "olmo2": (gguf.MODEL_ARCH.OLMO2, usual[2:] + dense + ["post_attention_layernorm", "post_feedforward_layernorm",
                                                              "self_attn.q_norm", "self_attn.k_norm"]),
        "llama4": (gguf.MODEL_ARCH.LLAMA4, usual + ["feed_forward.router"] + [
            f"feed_forward.{part}{name}" for part in ("", "shared_expert.") for name in ("gate_proj", "up_proj",
                                                                                        "down_proj")]),
        "qwen3next": (gguf.MODEL_ARCH.QWEN3NEXT, usual + ["self_attn.q_norm", "self_attn.k_norm", "mlp.gate"] + [
            f"mlp.shared_expert.{name}" for name in ("gate_proj", "up_proj", "down_proj")] + [
            "mlp.shared_expert_gate"] + [f"linear_attn.{name}" for name in (
                "in_proj_qkvz", "in_proj_ba", "conv1d", "norm", "out_proj")]),
    }
    tables = {}
    for word, (arch, in_layer) in families.items():
        names = gguf.get_tensor_name_map(arch, 13)
        stems = ["model.embed_tokens", "model.norm", "lm_head"] + [
            f"model.layers.{n}.{s}" for n in (0, 12) for s in in_layer]
        tables[word] = {names.get_name(stem) + ".weight": stem + ".weight" for stem in stems if names.get_name(stem)}
    return tables


def main():
    out = pathlib.Path(sys.argv[1])
    draw = np.random.default_rng(SEED)
    write_blocks(out, draw)
    tokenizer = train_tokenizer()
    tensors = model_tensors(draw, tokenizer.get_vocab_size())
    write_folder(out, tensors, tokenizer)
    write_gguf(out / "tiny_llama.gguf", tensors, tokenizer)
    (out / "tensor_names.json").write_text(json.dumps(
        {"made_by": "gguf 0.19.0", "names": name_table(), "gemma3_names": gemma_table(), "families": family_tables()},
        indent=0))
    import safetensors
    for shard in sorted((out / "tiny_llama").glob("*.safetensors")):
        with safetensors.safe_open(shard, framework="numpy") as reader:
            for name in reader.keys():
                assert reader.get_slice(name).get_shape() == list(tensors[name].shape)


if __name__ == "__main__":
    main()
