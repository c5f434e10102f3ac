"""The random model of tests/support/tiny_model.h in the transformers library: Llama with grouped queries, whose weights
are draws of harness/core/random.h's rule, so that the tests hold the same; and its layers by hand, over entries that
a caller keeps."""

import math

import numpy as np
import torch
from random_stream import uniform
from transformers import LlamaConfig, LlamaForCausalLM

DIM, GROUP = 32, 2


def tiny_model(seed=1, layers=3):
    config = LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=layers,
                         num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=2048,
                         rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True, attn_implementation="eager")
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            u = uniform(seed, name, parameter.numel())
            sharp = "q_proj" in name or "k_proj" in name
            scale = (6.0 if sharp else 2.0) / math.sqrt(parameter.shape[-1])
            values = 0.8 + 0.4 * u if parameter.dim() == 1 else scale * (2 * u - 1)
            parameter.copy_(torch.tensor(values.astype(np.float32)).view_as(parameter))
    return model


class Llama:
    """The model's layers over entries that a caller keeps: keys (rotated) and values, [layers][kv_heads, n, dim]."""

    def __init__(self, model):
        self.model = model.double()
        self.layers = model.model.layers
        self.frequencies = 10000.0 ** (-torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)

    def empty(self, n):
        return [[torch.zeros(2, n, DIM, dtype=torch.float64) for _ in range(2)] for _ in self.layers]

    def rotated(self, x, positions):
        angle = positions.double()[:, None] * self.frequencies
        a, b = x[..., : DIM // 2], x[..., DIM // 2:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    @torch.no_grad()
    def run(self, ids, rows, entries, first=0, narrow=None, visible=None):
        """Computes the tokens at `rows`, which see entries from `first` on, and stores theirs. `narrow(layer, fresh keys,
        fresh values, rows)` may say which of them go on; `visible[layer]`, [kv_heads, n], which entries there are.
        Returns the logits of the tokens that reach the end and the norms of the residual stream after each layer."""
        rows = torch.tensor(rows)
        h = self.model.model.embed_tokens(ids[rows])
        norms = []
        for index, layer in enumerate(self.layers):
            attention = layer.self_attn
            x = layer.input_layernorm(h)
            heads = lambda projection: projection(x).view(len(rows), -1, DIM).transpose(0, 1)
            q = self.rotated(heads(attention.q_proj), rows)
            k, v = self.rotated(heads(attention.k_proj), rows), heads(attention.v_proj)
            stays = narrow(index, k, v, rows) if narrow else None
            keys, values = entries[index]
            keys[:, rows], values[:, rows] = k, v
            if stays is not None:
                kept = torch.isin(rows, torch.tensor(stays))
                rows, q, h = rows[kept], q[:, kept], h[kept]
            seen = torch.arange(keys.shape[1])
            hidden = (seen[None] > rows[:, None]) | (seen[None] < first)
            scores = q @ keys.repeat_interleave(GROUP, 0).transpose(1, 2) / math.sqrt(DIM)
            if visible is not None:
                hidden = hidden | ~visible[index].repeat_interleave(GROUP, 0)[:, None]
            weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
            out = (weights @ values.repeat_interleave(GROUP, 0)).transpose(0, 1).reshape(len(rows), -1)
            h = h + attention.o_proj(out)
            h = h + layer.mlp(layer.post_attention_layernorm(h))
            norms.append(h.norm(dim=-1))
        return self.model.lm_head(self.model.model.norm(h)), norms
