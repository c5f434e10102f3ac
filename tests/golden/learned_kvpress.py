"""Selections of kvpress's methods that need a model's queries, hidden states or extra passes, for
tests/methods/compression/*_test.cpp.

    pip install torch transformers kvpress peft
    python tests/golden/learned_kvpress.py

Writes learned_kvpress/NAME.json. The model is the tests' tiny random Llama with grouped queries: its weights, the
prompts and the random weights of scorers are draws of harness/core/random.h, so that the file holds selections only. A
selection is the mask of kept positions of a layer and head as a hexadecimal number, bit i for position i. Selections
whose margin at the cut is below 1e-6 of the scores' spread are not written: they would test rounding. Written for
torch 2.11, transformers 5.23, kvpress 0.5.5 (sdpa attention, float32).
"""

import json

import numpy as np
import torch
import kvpress.presses.duo_attention_press as duo
from kvpress import (DMSPress, ExpectedAttentionPress, KnormPress, KVComposePress, KVzapPress, KVzipPress, LUKVPress,
                     QFilterPress, RestoreKVPress)
from kvpress.presses.expected_attention_with_stats import ExpectedAttentionStatsPress
from kvpress.presses.fastkvzip_press import FastKVzipGate, FastKVzipPress
from kvpress.presses.kvzap_press import KVzapConfig, KVzapModel
from by_method import write
from peft import LoraConfig
from random_stream import mix
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

TOKENS, LAYERS, PREFIX, CHUNK, RESTORING = 120, 3, 7, 50, 5
KEEP = [0.75, 0.5, 0.25]
THRESHOLDS = [-0.3, 0.0, 0.3]
INSTRUCTIONS = {"\n\nRepeat the previous context exactly.": [5, 9, 17],
                "\n\nRepeat the part of the previous context exactly, starting with": [5, 9, 17, 33, 2]}
AFTER_USER = [90, 91, 14]
CONFIG = LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS,
                     num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=2048,
                     rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True, attn_implementation="sdpa")


def uniform(seed, purpose, count):
    """RandomStream(seed, purpose).uniform(0 .. count-1)."""
    key = mix(seed)
    for c in purpose.encode():
        key = mix(key ^ c)

    def mixed(x):
        with np.errstate(over="ignore"):
            x = x + np.uint64(0x9E3779B97F4A7C15)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return x ^ (x >> np.uint64(31))

    bits = mixed(np.uint64(key) ^ mixed(np.arange(count, dtype=np.uint64)))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def drawn(purpose, shape, scale, seed=1):
    values = uniform(seed, purpose, int(np.prod(shape)))
    return torch.tensor((scale * (2 * values - 1)).astype(np.float32)).view(*shape)


def make_model():
    """tests/support/tiny_model.h."""
    model = LlamaForCausalLM(CONFIG).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = uniform(1, name, parameter.numel())
            if parameter.dim() == 1:
                drawn_values = 0.8 + 0.4 * values
            else:
                scale = (6.0 if "q_proj" in name or "k_proj" in name else 2.0) / np.sqrt(parameter.shape[1])
                drawn_values = scale * (2 * values - 1)
            parameter.copy_(torch.tensor(drawn_values.astype(np.float32)).view_as(parameter))
    return model


class Words:
    """A tokenizer that knows the instructions alone."""

    def encode(self, text, return_tensors=None, add_special_tokens=False):
        return torch.tensor([INSTRUCTIONS[text]])


def masks(dropped):
    """dropped [layers, kv_heads, n] bool -> kept positions as hexadecimal numbers."""
    return [[format(sum(1 << i for i, gone in enumerate(head) if not gone), "x") for head in layer.tolist()]
            for layer in dropped]


def clear_cut(scores, drop):
    """Whether the cut between the `drop` lowest and the rest is no matter of rounding."""
    ordered = scores.flatten().double().sort().values
    ordered = ordered[ordered < ordered.max() + 1]
    if drop <= 0 or drop >= len(ordered):
        return True
    return (ordered[drop] - ordered[drop - 1]) > 1e-6 * ordered.abs().median()


def run(model, ids, hook=None):
    """Caches and hooks of one forward pass."""
    seen = [None] * LAYERS

    def remember(module, args, kwargs, output):
        seen[module.layer_idx] = (module, kwargs["hidden_states"], kwargs)

    handles = [layer.self_attn.register_forward_hook(remember, with_kwargs=True) for layer in model.model.layers]
    cache = DynamicCache()
    model.model(input_ids=ids, past_key_values=cache)
    for handle in handles:
        handle.remove()
    return seen, cache


def by_scores(model, press, seen, cache):
    """scores [layers, kv_heads, n] of a ScorerPress."""
    scores = []
    for (module, hidden, kwargs), layer in zip(seen, cache.layers):
        module.rotary_emb = model.model.rotary_emb
        scores.append(press.score(module, hidden, layer.keys, layer.values, None, kwargs)[0])
    return torch.stack(scores)


def uniform_drop(scores, keep):
    """kvpress's ScorerPress: each head keeps int(n * keep)."""
    n = scores.shape[-1]
    drop = n - int(n * keep)
    for head in scores.flatten(0, 1):
        if not clear_cut(head, drop):
            return None
    dropped = torch.zeros_like(scores, dtype=torch.bool)
    dropped.scatter_(-1, scores.topk(drop, dim=-1, largest=False).indices, True)
    return masks(dropped)


def masked(model, scores, drop):
    """What a press with masked_key_indices drops; None when rounding decides."""
    if not clear_cut(scores, drop):
        return None
    dropped = torch.zeros_like(scores, dtype=torch.bool)
    for layer in model.model.layers:
        _, heads, positions = layer.self_attn.masked_key_indices
        dropped[layer.self_attn.layer_idx, heads, positions] = True
    return masks(dropped)


def lukv(model, seen, cache, keep, scorer, **options):
    press = LUKVPress(scorer, compression_ratio=1 - keep, **options)
    press._budget_curves = (drawn("curves", [99, LAYERS, 2], 0.45) + 0.5).numpy()
    scores = by_scores(model, scorer, seen, cache)
    scores[..., :press.sink] = scores[..., TOKENS - press.window:] = scores.max() + 1
    dropped = torch.zeros_like(scores, dtype=torch.bool)
    for layer, ((module, hidden, kwargs), entries) in enumerate(zip(seen, cache.layers)):
        press.compress(module, hidden, entries.keys, entries.values, None, kwargs)
        _, heads, positions = module.masked_key_indices
        dropped[layer, heads, positions] = True
    if all(clear_cut(head, int(gone.sum())) for head, gone in zip(scores.flatten(0, 1), dropped.flatten(0, 1))):
        return masks(dropped)


def kvzip(model, ids, prefix, keep, plus):
    press = KVzipPress(compression_ratio=1 - keep, kvzip_plus_normalization=plus, chunk_size=CHUNK)
    _, cache = run(model, ids)
    press._context_ids, press._cache, press.prefix_length = ids, cache, prefix
    press._suffix_ids = torch.tensor([AFTER_USER])
    for layer in model.model.layers:
        layer.self_attn.rotary_emb = model.model.rotary_emb
    press._perform_kvzip_compression(model, Words())
    scores = press.score_val[:, 0]
    return {"global": masked(model, scores, int(scores.numel() * (1 - keep))), "uniform": uniform_drop(scores, keep)}


def adapted_model():
    """The model under an adapter of every projection, which is off."""
    model = make_model()
    model.add_adapter(LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"), adapter_name="restorekv")
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.copy_(drawn(name.replace(".restorekv", ""), parameter.shape, 0.3))
    model.disable_adapters()
    return model


def restorekv(model, ids, prefix, keep):
    """What is masked of the prompt, and the entries of the restoring tokens, [keys, values][layers][tokens, 2, 32]."""
    press = RestoreKVPress(compression_ratio=1 - keep, chunk_size=CHUNK)
    press.restore_embeddings = drawn("restore_embeddings", [RESTORING, 64], 0.5)
    _, cache = run(model, ids)
    press._context_ids, press._cache, press.prefix_length, press.context_length = ids, cache, prefix, TOKENS
    press._suffix_ids = torch.tensor([AFTER_USER])
    for layer in model.model.layers:
        layer.self_attn.rotary_emb = model.model.rotary_emb
    press._perform_kvzip_compression(model, Words())
    scores = press.score_val[:, 0]
    selection = masked(model, scores, sum(len(layer.self_attn.masked_key_indices[0]) for layer in model.model.layers))
    entries = [[round(x, 5) for layer in cache.layers for x in side(layer)[0, :, TOKENS:].transpose(0, 1).flatten().tolist()]
               for side in (lambda layer: layer.keys, lambda layer: layer.values)]
    return selection, entries


class ReadAgain(KVComposePress):
    """Keeps what was chosen; None where rounding decides."""

    def compress_cache(self, model):
        self.kept = None
        for layer in model.model.layers:
            layer.self_attn.masked_key_indices = None
        counts = self.important_per_layer[:, None].repeat(2, 1) if self.structured else self.important_per_head
        worth = self.composite_scores_per_layer if self.structured else self.composite_scores_per_head
        cuts = [clear_cut(worth, worth.numel() - int(worth.numel() * (1 - self.compression_ratio)))]
        cuts += [clear_cut(head, TOKENS - int(count))
                 for head, count in zip(self.scores.flatten(0, 1), counts.flatten())]
        if all(cuts):
            self.kept = masks(~torch.stack([torch.stack(heads) for heads in self.important_mask_per_kv_head]))


def kvcompose(model, ids, keep, **options):
    press = ReadAgain(compression_ratio=1 - keep, **options)
    with press(model):
        model(ids, past_key_values=DynamicCache())
    return press.kept


def kvzap_model(kind):
    hidden = None if kind == "linear" else 16
    surrogate = KVzapModel(KVzapConfig(input_dim=64, output_dim=2, n_modules=LAYERS, hidden_dim=hidden)).eval()
    for name, parameter in surrogate.named_parameters():
        parameter.copy_(drawn(f"{kind} {name}", parameter.shape, 0.2))
    return surrogate


def gates():
    modules = []
    for layer in range(LAYERS):
        gate = FastKVzipGate(layer, 64, 2, 2, torch.float32, 8, 4).eval()
        for name, parameter in gate.named_parameters():
            values = drawn(f"gate {layer}.{name}", parameter.shape, 0.4)
            parameter.copy_(values + 1 if "norm" in name else values)
        modules.append(gate)
    return modules


def fast_kvzip(model, seen, keep):
    press = FastKVzipPress(compression_ratio=1 - keep)
    press.gates = gates()
    press.score_val = [None] * LAYERS
    for module, hidden, _ in seen:
        press._score_fast(module, hidden)
    press.compress_post(model)
    scores = press.score_val[:, 0]
    return masked(model, scores, int(scores.numel() * (1 - keep)))


def thresholded(model, seen, cache, surrogate, tau, window):
    scorer = KVzapPress(model_type="linear")
    scorer.kvzap_model = surrogate
    press = DMSPress(scorer, threshold=tau, sliding_window_size=window)
    scores = by_scores(model, scorer, seen, cache)
    if (scores - tau).abs().min() < 1e-6:
        return None
    for module, hidden, kwargs in seen:
        module.masked_key_indices = None
        kwargs = {**kwargs, "past_key_values": cache, "cache_position": torch.arange(TOKENS), "hidden_states": hidden}
        press.forward_hook(module, [], kwargs, [None])
    dropped = torch.zeros_like(scores, dtype=torch.bool)
    for module, _, _ in seen:
        if module.masked_key_indices is not None:
            _, heads, positions = module.masked_key_indices
            dropped[module.layer_idx, heads, positions] = True
    return masks(dropped)


def duo_attention(model):
    """Head scores without training over two texts, and what the press masks of a prompt."""
    texts = {str(n): torch.tensor(np.argsort(uniform(n, "golden text", 128))[None, :].copy()) for n in range(2)}

    class Frame(dict):
        def to_pandas(self):
            return self

        def sample(self, count, random_state):
            return {"chapter": np.array(list(texts))}

    class Tokens(dict):
        def to(self, device):
            return self

    duo.load_dataset = lambda *args, **kwargs: Frame()
    duo.AutoTokenizer.from_pretrained = lambda name: lambda text, return_tensors: Tokens(input_ids=texts[text])
    reach = duo.duo_attention_on_the_fly(model, num_samples=2)
    kept = {}
    for sparsity in KEEP:
        press = duo.DuoAttentionPress(head_compression_ratio=sparsity)
        press.sink_size, press.recent_size = 8, 16
        press.streaming_mask = torch.zeros(reach.shape, dtype=bool)
        indices = np.argsort(reach, axis=None)[: round(reach.size * sparsity)]
        press.streaming_mask[np.unravel_index(indices, reach.shape)] = True
        dropped = torch.zeros(LAYERS, 2, TOKENS, dtype=torch.bool)
        for layer in model.model.layers:
            keys = torch.zeros(1, 2, TOKENS, 32)
            press.compress(layer.self_attn, None, keys, keys, None, {})
            _, heads, positions = layer.self_attn.masked_key_indices
            dropped[layer.self_attn.layer_idx, heads, positions] = True
        kept[str(sparsity)] = masks(dropped)
    return {"texts": [text[0].tolist() for text in texts.values()], "reach": reach.tolist(), "kept": kept}


def with_statistics():
    press = ExpectedAttentionStatsPress()
    press.mu = drawn("query_mean", [LAYERS, 4, 32], 1.0)
    root = drawn("query_root", [LAYERS, 4, 32, 32], 0.2)
    press.cov = root @ root.transpose(-1, -2)
    return press


def with_filters():
    press = QFilterPress()
    press.q_filters = drawn("q_filters", [LAYERS, 2, 32], 1.0)
    return press


@torch.no_grad()
def main():
    model, restoring = make_model(), adapted_model()
    cases = []
    for number in range(5):
        # No token twice: equal hidden states would tie.
        ids = torch.tensor(np.argsort(uniform(number, "golden prompt", 128))[None, :TOKENS].copy())
        seen, cache = run(model, ids)
        zap = {kind: kvzap_model(kind) for kind in ("linear", "mlp")}
        kept = {}
        for keep in KEEP:
            expected = {
                "plain": ExpectedAttentionPress(),
                "mean": ExpectedAttentionPress(use_covariance=False, use_vnorm=False),
                "wide": ExpectedAttentionPress(n_sink=9, n_future_positions=64, epsilon=0.01),
                "fitted": with_statistics(),
            }
            kept[str(keep)] = {
                **{f"expected_attention {name}": uniform_drop(by_scores(model, press, seen, cache), keep)
                   for name, press in expected.items()},
                **{f"kvzip {name} {rule}": selection
                   for name, prefix, plus in [("bare", 0, False), ("template", PREFIX, False), ("plus", 0, True)]
                   for rule, selection in kvzip(model, ids, prefix, keep, plus).items()},
                **{f"restorekv {name}": restorekv(restoring, ids, prefix, keep)[0]
                   for name, prefix in [("bare", 0), ("template", PREFIX)]},
                "kvcompose composite": kvcompose(model, ids, keep),
                "kvcompose heads": kvcompose(model, ids, keep, structured=False),
                "kvcompose apart": kvcompose(model, ids, keep, agg_group="max", add_mean_across_heads=False),
                "lukv expected": lukv(model, seen, cache, keep, ExpectedAttentionPress(epsilon=0.02)),
                "lukv norm": lukv(model, seen, cache, keep, KnormPress(), sink=3, window=2),
                "fast_kvzip": fast_kvzip(model, seen, keep),
                "qfilter": uniform_drop(by_scores(model, with_filters(), seen, cache), keep),
            }
            for kind, surrogate in zap.items():
                press = KVzapPress(model_type=kind)
                press.kvzap_model = surrogate
                kept[str(keep)][f"kvzap {kind}"] = uniform_drop(by_scores(model, press, seen, cache), keep)
        above = {str(tau): thresholded(model, seen, cache, zap["linear"], tau, 16) for tau in THRESHOLDS}
        cases.append({"tokens": ids[0].tolist(), "kept": kept, "thresholds": above})
    common = {"prefix": PREFIX, "chunk": CHUNK, "instructions": list(INSTRUCTIONS.values()), "after_user": AFTER_USER,
              "window": 16}
    for name in ("expected_attention", "kvzip", "restorekv", "kvcompose", "kvzap", "fast_kvzip", "qfilter", "lukv"):
        own = lambda kept: {case: selection for case, selection in kept.items() if case.split()[0] == name}
        more = lambda case: {"thresholds": case["thresholds"]} if name == "kvzap" else {}
        extra = {"entries": restorekv(restoring, torch.tensor([cases[0]["tokens"]]), 0, 0.5)[1]} if name == "restorekv" else {}
        write(__file__, name, {**common, **extra, "cases": [
            {"tokens": case["tokens"], "kept": {keep: own(kept) for keep, kept in case["kept"].items()}, **more(case)}
            for case in cases]})
    write(__file__, "duo_attention", {**common, "tokens": cases[0]["tokens"], **duo_attention(model)})


if __name__ == "__main__":
    main()
