"""A random decoder of two layers as a folder that kvarena opens: milliseconds a sample, for tests of everything around a
model. Tokens are those of tests/golden/model/tiny_llama. Standard library only."""

import array
import json
import pathlib
import random
import shutil
import struct


def write(folder, source, *, window=4096, seed=1):
    """Writes config.json, model.safetensors and the tokenizer into `folder`; `source` is the source tree."""
    folder, golden = pathlib.Path(folder), pathlib.Path(source) / "tests/golden/model/tiny_llama"
    folder.mkdir(parents=True)
    layers, hidden, q_heads, kv_heads, head_dim, inner, vocabulary = 2, 32, 4, 2, 16, 48, 301
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}
    for layer in range(layers):
        base = f"model.layers.{layer}."
        shapes |= {base + "input_layernorm.weight": (hidden,), base + "post_attention_layernorm.weight": (hidden,),
                   base + "self_attn.q_proj.weight": (q_heads * head_dim, hidden),
                   base + "self_attn.k_proj.weight": (kv_heads * head_dim, hidden),
                   base + "self_attn.v_proj.weight": (kv_heads * head_dim, hidden),
                   base + "self_attn.o_proj.weight": (hidden, q_heads * head_dim),
                   base + "mlp.gate_proj.weight": (inner, hidden), base + "mlp.up_proj.weight": (inner, hidden),
                   base + "mlp.down_proj.weight": (hidden, inner)}
    draw = random.Random(seed)
    header, data = {}, array.array("f")
    for name, shape in shapes.items():
        begin, count = 4 * len(data), shape[0] * (shape[1] if len(shape) > 1 else 1)
        data.extend(draw.gauss(0, 1) * hidden ** -0.5 if len(shape) > 1 else 1.0 for _ in range(count))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, 4 * len(data)]}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data.tobytes())
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": layers, "hidden_size": hidden,
        "num_attention_heads": q_heads, "num_key_value_heads": kv_heads, "head_dim": head_dim, "intermediate_size": inner,
        "vocab_size": vocabulary, "max_position_embeddings": window, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "hidden_act": "silu"}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(golden / name, folder / name)
