"""A tiny EAGLE-3 drafter and what a retrieval head made of it computes, for tests/methods/retrieval/specontext_test.cpp.

    pip install torch transformers safetensors
    python tests/golden/specontext.py

Writes specontext_eagle3/ (config.json and model.safetensors in the layout of the published checkpoints, random weights)
and specontext.json. The arithmetic is that of the drafter's attention in SafeAILab/EAGLE, restated: RMS norms of the
embedding and of fc(features), both halves joined, the query and key projections, rotation by transformers' own YaRN.
Embeddings and features are draws of harness/core/random.h. Keys are rounded to bf16 before the scores, as they are kept.
A selection is a list of positions, or null where the cut's margin is below 1e-4. "decoding" is the whole of it: tokens
that the random model of tiny_model.py (8 layers) decodes after a prompt, each under what the head chooses for all layers,
with the features that SafeAILab/EAGLE keeps of it (the inputs of layers 2, L / 2 and L - 3) of the token before. Written
for torch 2.11, transformers 5.23, safetensors 0.8.0.
"""

import json
import pathlib

import torch
from random_stream import draw
from safetensors.torch import save_file
from tiny_model import Llama, tiny_model
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb

HERE = pathlib.Path(__file__).parent
HIDDEN, Q_HEADS, KV_HEADS, DIM, TOKENS = 64, 4, 2, 32, 96
CONFIG = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": HIDDEN, "num_attention_heads": Q_HEADS,
          "num_key_value_heads": KV_HEADS, "intermediate_size": 32, "rms_norm_eps": 1e-6, "rope_theta": 50000.0,
          "max_position_embeddings": 256, "draft_vocab_size": 16, "vocab_size": 128, "torch_dtype": "bfloat16"}


def uniform(seed, purpose, count):
    return torch.tensor([(draw(seed, purpose, i) >> 11) * 2.0**-53 for i in range(count)], dtype=torch.float64)


def weights():
    torch.manual_seed(5)

    def drawn(*shape, scale):
        return (torch.randn(*shape) * scale).bfloat16()

    attention = "midlayer.self_attn."
    return {
        "fc.weight": drawn(HIDDEN, 3 * HIDDEN, scale=0.1),
        attention + "q_proj.weight": drawn(Q_HEADS * DIM, 2 * HIDDEN, scale=0.15),
        attention + "k_proj.weight": drawn(KV_HEADS * DIM, 2 * HIDDEN, scale=0.15),
        attention + "v_proj.weight": drawn(KV_HEADS * DIM, 2 * HIDDEN, scale=0.1),
        attention + "o_proj.weight": drawn(HIDDEN, Q_HEADS * DIM, scale=0.1),
        "midlayer.input_layernorm.weight": 1 + drawn(HIDDEN, scale=0.2),
        "midlayer.hidden_norm.weight": 1 + drawn(HIDDEN, scale=0.2),
        "midlayer.post_attention_layernorm.weight": 1 + drawn(HIDDEN, scale=0.2),
        "midlayer.mlp.down_proj.weight": drawn(HIDDEN, 32, scale=0.1),
        "norm.weight": 1 + drawn(HIDDEN, scale=0.2),
        "d2t": torch.arange(16),
        "t2d": torch.arange(128) < 16,
    }


def norm(x, weight):
    layer = LlamaRMSNorm(HIDDEN, eps=CONFIG["rms_norm_eps"])
    layer.weight.data = weight.float()
    return layer(x)


def head(w, embeddings, features, yarn):
    """Rotated q [Q_HEADS, n, DIM] and k [KV_HEADS, n, DIM]."""
    n = embeddings.shape[0]
    e = norm(embeddings, w["midlayer.input_layernorm.weight"])
    g = torch.zeros_like(e)
    if features is not None:
        g = norm(features @ w["fc.weight"].float().T, w["midlayer.hidden_norm.weight"])
    x = torch.cat([e, g], -1)
    q = (x @ w["midlayer.self_attn.q_proj.weight"].float().T).view(1, n, Q_HEADS, DIM).transpose(1, 2)
    k = (x @ w["midlayer.self_attn.k_proj.weight"].float().T).view(1, n, KV_HEADS, DIM).transpose(1, 2)
    rope = {"rope_type": "default", "rope_theta": CONFIG["rope_theta"]}
    if yarn > 1:
        rope |= {"rope_type": "yarn", "factor": yarn,
                 "original_max_position_embeddings": CONFIG["max_position_embeddings"]}
    config = LlamaConfig(hidden_size=HIDDEN, num_attention_heads=Q_HEADS, num_key_value_heads=KV_HEADS, head_dim=DIM,
                         max_position_embeddings=CONFIG["max_position_embeddings"], rope_parameters=rope)
    cos, sin = LlamaRotaryEmbedding(config)(x[None], torch.arange(n)[None])
    q, k = apply_rotary_pos_emb(q, k, cos, sin)
    return q[0], k[0]


def best(p, budget):
    """The newest position and the best others, or None where rounding may decide."""
    others = p[:-1].sort(descending=True).values
    if others[budget - 2] - others[budget - 1] < 1e-4 * others[budget - 2]:
        return None
    return sorted(p[:-1].topk(budget - 1).indices.tolist() + [len(p) - 1])


def selections(q, k, budget):
    """What the newest token chooses at both levels."""
    keys = k.bfloat16().float().repeat_interleave(Q_HEADS // KV_HEADS, 0)
    p = torch.softmax((q[:, -1:] @ keys.transpose(1, 2))[:, 0] / DIM**0.5, -1)
    grouped = p.view(KV_HEADS, -1, p.shape[-1]).amax(1)
    return {"head": [best(row, budget) for row in grouped], "batch": best(p.amax(0), budget),
            "query": [best(row, budget) for row in p]}


def decoding(w, tokens, embeddings, prompt=60, budget=17, yarn=8):
    """What the head chooses, a list a kv head, for each token behind the prompt."""
    model = Llama(tiny_model(1, layers=8))
    inputs = {}
    for layer in (2, 4, 5):
        model.layers[layer].input_layernorm.register_forward_pre_hook(
            lambda _, arguments, layer=layer: inputs.__setitem__(layer, arguments[0]))
    ids, entries = torch.tensor(tokens), model.empty(len(tokens))

    def run(rows, visible=None):
        model.run(ids, rows, entries, visible=visible)
        return torch.cat([inputs[layer] for layer in (2, 4, 5)], -1).float()

    features = run(list(range(prompt)))
    chosen = []
    for t in range(prompt, len(tokens)):
        before = torch.cat([torch.zeros(1, 3 * HIDDEN), features])
        chosen.append(selections(*head(w, embeddings[:t + 1], before, yarn), budget)["head"])
        assert None not in chosen[-1], t
        visible = torch.zeros(KV_HEADS, len(tokens), dtype=torch.bool)
        for kv_head, positions in enumerate(chosen[-1]):
            visible[kv_head, positions] = True
        features = torch.cat([features, run([t], [visible] * 8)])
    return {"prompt": prompt, "budget": budget, "chosen": chosen}


def main():
    w = weights()
    folder = HERE / "specontext_eagle3"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    save_file(w, folder / "model.safetensors", metadata={"format": "pt"})

    tokens = [int(128 * u) for u in uniform(3, "tokens", TOKENS).tolist()]
    table = uniform(1, "model.embed_tokens.weight", 128 * HIDDEN).reshape(128, HIDDEN)
    embeddings = (2.0 / HIDDEN**0.5 * (2 * table - 1)).float()[tokens]
    features = (2 * uniform(2, "features", TOKENS * 3 * HIDDEN) - 1).float()
    features = features.view(TOKENS, 3 * HIDDEN)
    cases = []
    for feature in ("zero", "previous"):
        for yarn in (1, 8):
            q, k = head(w, embeddings, features if feature == "previous" else None, yarn)
            cases.append({"feature": feature, "yarn": yarn,
                          "q": [round(x, 5) for x in q[:, -1].flatten().tolist()],
                          "k": {str(t): [round(x, 5) for x in k[:, t].flatten().tolist()] for t in (0, 37, TOKENS - 1)},
                          "selected": {str(b): selections(q, k, b) for b in (4, 17, 60)}})
    text = json.dumps({"tokens": tokens, "cases": cases, "decoding": decoding(w, tokens, embeddings)})
    (HERE / "specontext.json").write_text(text + "\n")


if __name__ == "__main__":
    with torch.no_grad():
        main()
