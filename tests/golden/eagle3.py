"""A tiny EAGLE-3 drafter and what its authors' code drafts with it, for tests/harness/method/draft_head_test.cpp.

    pip install torch transformers safetensors numpy
    git clone https://github.com/SafeAILab/EAGLE && git -C EAGLE checkout cb7e0841fe0c206c6ed74a197ad5e2a1f13f5a2b
    PYTHONPATH=EAGLE/eagle python tests/golden/eagle3.py

Writes eagle3_drafter/ (config.json and model.safetensors in the layout of the published checkpoints, random weights) and
eagle3.json: logits of the head for the tokens of a prompt, and the trees that Model.topK_genrate makes of it (eagle/model/
cnets.py); top_k = 1 is a chain. Embeddings are those of tests/support/tiny_model.h with seed 1, features and tokens draws
of harness/core/random.h. The authors' attention wants head_dim = hidden_size / heads. Written for torch 2.11, transformers
5.23, safetensors 0.8.0.
"""

import json
import pathlib

import torch
from model.cnets import Model
from model.configs import EConfig
from random_stream import uniform
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
HIDDEN, VOCAB, DRAFT_VOCAB, TOKENS = 64, 128, 24, 40
CONFIG = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": HIDDEN, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 96, "rms_norm_eps": 1e-6, "rope_theta": 20000.0,
          "max_position_embeddings": 256, "draft_vocab_size": DRAFT_VOCAB, "vocab_size": VOCAB, "hidden_act": "silu",
          "torch_dtype": "bfloat16"}


def draws(seed, purpose, count):
    return torch.from_numpy(uniform(seed, purpose, count))


def drafter():
    config = EConfig(**CONFIG)
    config.rope_scaling, config.rope_theta = None, CONFIG["rope_theta"]  # which newer transformers keep elsewhere
    model = Model(config).float().eval()
    torch.manual_seed(11)
    for name, p in model.named_parameters():
        if p.dim() == 1:
            p.data = 1 + 0.2 * torch.randn(p.shape)
        else:
            sharp = 3.0 if "q_proj" in name or "k_proj" in name else 1.5
            p.data = sharp * torch.randn(p.shape) / p.shape[1] ** 0.5
        p.data = p.data.bfloat16().float()
    known = torch.randperm(VOCAB)[:DRAFT_VOCAB].sort().values
    model.d2t = known - torch.arange(DRAFT_VOCAB)
    model.t2d[known] = True
    weights = {name: tensor.bfloat16() for name, tensor in model.named_parameters() if "embed" not in name}
    weights |= {"d2t": model.d2t, "t2d": model.t2d}
    folder = HERE / "eagle3_drafter"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    table = draws(1, "model.embed_tokens.weight", VOCAB * HIDDEN).reshape(VOCAB, HIDDEN)
    model.embed_tokens.weight.data = (2.0 / HIDDEN**0.5 * (2 * table - 1)).float()
    return model


def tree(model, tokens, features, top_k, depth, total):
    """Drafted tokens and the place of each one's parent among them, -1 for the newest token."""
    model.top_k, model.depth, model.total_tokens = top_k, depth, total
    model.init_tree()
    model.reset_kv()
    drafted, _, mask, position = model.topK_genrate(features[None], torch.tensor([tokens]), None, None)
    mask, position = mask[0, 0].bool(), position.tolist()
    parents = []
    for i in range(1, len(position)):
        above = [j for j in range(i) if mask[i, j] and position[j] == position[i] - 1]
        parents.append(above[0] - 1)
    return {"top_k": top_k, "depth": depth, "total": total, "tokens": drafted[0, 1:].tolist(), "parents": parents}


def main():
    model = drafter()
    tokens = [int(VOCAB * u) for u in draws(3, "tokens", TOKENS + 1).tolist()]
    features = (2 * draws(2, "features", TOKENS * 3 * HIDDEN) - 1).float().view(TOKENS, 3 * HIDDEN)
    model.reset()
    out, _ = model(features[None], input_ids=torch.tensor([tokens[1:]]), use_cache=True)
    logits = model.lm_head(model.norm(out[0]))
    cases = [tree(model, tokens, features, *case)
             for case in ((1, 4, 5), (4, 3, 12), (3, 5, 20), (10, 2, 30))]
    text = {"made_by": "tests/golden/eagle3.py, SafeAILab/EAGLE cb7e0841", "torch": torch.__version__, "tokens": tokens,
            "logits": {str(i): [round(x, 6) for x in logits[i].tolist()] for i in (0, 1, 17, TOKENS - 1)},
            "trees": cases}
    (HERE / "eagle3.json").write_text(json.dumps(text) + "\n")


if __name__ == "__main__":
    with torch.no_grad():
        main()
