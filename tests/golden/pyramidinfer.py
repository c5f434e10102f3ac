"""What PyramidInfer's own code keeps and predicts, for tests/methods/compression/pyramidinfer_test.cpp.

    git clone https://github.com/mutonix/pyramidinfer     # written for commit 61ac641
    pip install torch transformers==4.41.2
    python tests/golden/pyramidinfer.py pyramidinfer > tests/golden/pyramidinfer.json
    python tests/golden/pyramidinfer.py pyramidinfer FOLDER > tests/golden/pyramidinfer_smollm2.json

models/modeling_llama_pyramidinfer_legacy.py runs in float64 on a random Llama with grouped queries, whose weights are draws of
harness/core/random.h (the test holds the same), or on a folder in Hugging Face layout (of the default
model: its GGUF file, dequantised): the prompt in one pass, then forced tokens one at a time. A case holds the settings, of each layer the
positions that it computed of the prompt as bits of a hexadecimal number (of a checkpoint a digest of them), the entries it
holds after every forced token, and some logits of the prompt and of some forced tokens. Positions are read from
what the code hands to each layer. With an interval above 1 it cannot decode (it remembers the attention of the layer
before, which has other entries), so that case has no forced tokens.
"""

import hashlib
import json
import math
import pathlib
import sys

import torch
from random_stream import uniform
from safetensors.torch import load_file
from transformers import LlamaConfig

LAYERS, TOKENS, STEPS = 6, 160, 60
DEFAULTS = {"decay": 0.9, "recent_ratio": 0.2, "interval": 1, "min_context": 64, "sinks": 4, "distance_weight": 1.2,
            "block": 16, "generated_decay": 0.1, "generated_keep": 0.9}
CASES = [{}, {"decay": 0.6, "min_context": 16}, {"decay": 0.8, "interval": 2, "min_context": 8, "recent_ratio": 0.1},
         {"decay": 0.3, "min_context": 8, "recent_ratio": 0.05, "block": 8, "distance_weight": 3.0, "sinks": 2}]


def make_model():
    from modeling_llama_pyramidinfer_legacy import LlamaForCausalLM

    config = LlamaConfig(vocab_size=128, hidden_size=128, intermediate_size=96, num_hidden_layers=LAYERS,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, rms_norm_eps=1e-5,
                         tie_word_embeddings=False, attn_implementation="eager")
    config.pretraining_tp = 1
    model = LlamaForCausalLM(config).double().eval()
    model.lm_head.weight = model.model.embed_tokens.weight
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            u = torch.tensor(uniform(1, name, parameter.numel()).tolist(), dtype=torch.float64)
            sharp = "q_proj" in name or "k_proj" in name
            scale = (6.0 if sharp else 2.0) / math.sqrt(parameter.shape[-1])
            values = 0.8 + 0.4 * u if parameter.dim() == 1 else scale * (2 * u - 1)
            parameter.copy_(values.float().view_as(parameter))
    return model


def load_model(folder):
    from modeling_llama_pyramidinfer_legacy import LlamaForCausalLM, LlamaRotaryEmbedding

    saved = json.loads((folder / "config.json").read_text())
    config = LlamaConfig(**{key: saved[key] for key in (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "rms_norm_eps")}, tie_word_embeddings=False,
        attn_implementation="eager")
    config.pretraining_tp = 1
    model = LlamaForCausalLM(config).double().eval()
    weights = load_file(folder / "model.safetensors")
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    missing = model.load_state_dict(weights, strict=False)
    assert not missing.unexpected_keys and all("inv_freq" in key for key in missing.missing_keys), missing
    for layer in model.model.layers:  # the code knows no other base than 10000
        layer.self_attn.rotary_emb = LlamaRotaryEmbedding(saved["head_dim"], base=saved["rope_parameters"]["rope_theta"])
    return model


def configure(config, spec):
    config.prefill_decay_ratio = spec["decay"]
    config.prefill_decay_strategy = config.gen_decay_strategy = "cosine"
    config.recent_ratio = spec["recent_ratio"]
    config.layerwise_downsample_interval = spec["interval"]
    config.min_context_length = spec["min_context"]
    config.streamingllm_sink_len = spec["sinks"]
    config.distance_weight = spec["distance_weight"]
    config.exceed_length_to_compress = spec["block"]
    config.gen_decay_ratio = spec["generated_decay"]
    config.gen_compress_ratio = spec["generated_keep"]


def mask(positions):
    return f"{sum(1 << p for p in positions):x}"


def digest(positions):
    return hashlib.sha256(json.dumps(positions, separators=(",", ":")).encode()).hexdigest()[:10]


def numbers(logits):
    return [round(x, 6) for x in logits[0, -1, ::8 if logits.shape[-1] < 4096 else 4096].tolist()]


@torch.no_grad()
def run(model, tokens, forced, spec, written):
    configure(model.config, spec)
    computed = []
    hooks = [layer.register_forward_pre_hook(
        lambda module, args, kwargs: computed.append(kwargs["selected_position_ids"]), with_kwargs=True)
        for layer in model.model.layers]
    out = model(torch.tensor([tokens]), use_cache=True, past_kv_seq_lens=[], recent_attn_weights=[])
    for hook in hooks:
        hook.remove()
    case = {"spec": spec, "computed": [written(layer[0].tolist()) for layer in computed],
            "prompt": numbers(out.logits), "held": [], "steps": {}}
    for step, token in enumerate(forced if spec["interval"] == 1 else []):
        out = model(torch.tensor([[token]]), position_ids=torch.tensor([[len(tokens) + step]]), use_cache=True,
                    past_key_values=out.past_key_values, past_kv_seq_lens=out.past_kv_seq_lens,
                    recent_attn_weights=out.recent_attn_weights)
        case["held"].append([layer[0].shape[2] for layer in out.past_key_values])
        if step % 13 == 0 or step + 1 == len(forced):
            case["steps"][step] = numbers(out.logits)
    return case


def prompts_of(model, orders, written):
    return [{"tokens": tokens, "forced": forced,
             "cases": [run(model, tokens, forced, DEFAULTS | changed, written) for changed in CASES]}
            for tokens, forced in orders]


def main():
    sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "models"))
    torch.set_default_dtype(torch.float64)
    if len(sys.argv) > 2:
        dropping = json.loads((pathlib.Path(__file__).parent / "dropping_smollm2.json").read_text())
        ids = [prompt["tokens"] for prompt in dropping["prompts"]]
        prompts = prompts_of(load_model(pathlib.Path(sys.argv[2])), [(some[:184], some[184:]) for some in ids], digest)
    else:
        draws = lambda number, purpose, count: [int(128 * u) for u in uniform(number, purpose, count)]
        orders = [(draws(number, "pyramid prompt", TOKENS), draws(number, "pyramid forced", STEPS))
                  for number in range(5)]
        prompts = prompts_of(make_model(), orders, mask)
    json.dump({"prompts": prompts}, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
