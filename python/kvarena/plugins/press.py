"""Presses of kvpress, unmodified, over what the engine computed: the method `kvpress`.

    kvarena --plugin "$(python -m kvarena.plugins.press)" run config.json

    {"name": "kvpress", "press": "SnapKVPress(window_size=64)", "keep": 0.25}

Needs kvpress with its transformers. Of the evaluated model, transformers loads the weights that presses read (query
projections, the rotation); keys, values, attention inputs and sums of attention are the engine's, and so are the budget, which
is the press's compression_ratio, and what is kept. Of the 19 presses of kvpress 0.5.5 that score, 16 run; the others
(ExpectedAttentionStatsPress, KVzapPress, QFilterPress) fetch weights of their own from the hub, for models that have some.
A press that divides the budget among layers does so where it is named once more:

    {"name": "kvpress", "press": "PyramidKVPress()", "keep": 0.25,
     "budget_rule": {"name": "kvpress_layers", "press": "PyramidKVPress()"}}
"""

import pathlib
import types
from typing import Annotated

import torch

from kvarena import Scorer, budget_rule, hf

_LARGEST_DIFFERENCE = 0.05  # of a layer's keys, relative to their norm: the engine may compute in fewer bits


def require_scores(press, text):
    """Raises where the press is none that scores entries."""
    import kvpress

    if not isinstance(press, kvpress.ScorerPress):
        raise ValueError(
            f"press {text}: found no ScorerPress; only those give scores, others act inside of attention and run beside a"
            ' model with "engine": "transformers"'
        )


class KvPress(Scorer):
    """Keeps what a press of NVIDIA's kvpress scores highest."""

    name = "kvpress"
    title = "kvpress"
    paper = "https://github.com/NVIDIA/kvpress"
    hidden = True

    def __init__(
        self,
        press: Annotated[str, "the press, as Python writes it"] = "KnormPress()",
        model: Annotated[str, "its weights: own, of the evaluated model; a folder, a .gguf file, or one in KVARENA_HOME"] = "own",
    ):
        self._press = hf.build(press)
        self._text = press
        self._weights = model
        self._path = None  # of the model that is loaded
        self.prompt_attention = hf.reads_attention(self._press)

    @torch.no_grad()
    def score(self, layer):
        require_scores(self._press, self._text)
        if layer.decoding or layer.n != layer.prompt_tokens:
            raise ValueError("presses score the whole prompt once; found a cache that was compressed or decoded into")
        self._load(layer.model if self._weights == "own" else self._weights)
        self._press.compression_ratio = 1 - layer.share / layer.n
        module = self._body.layers[layer.layer].self_attn
        hidden, keys, values = layer.hidden[None], layer.keys[None], layer.values[None]
        position = torch.arange(layer.n)
        rotation = hf.rotation(self._body, layer.layer, hidden, position[None])
        self._check(module, hidden, keys, rotation)
        seen = layer.prompt_attention[None, :, None] if self.prompt_attention else None  # the sum over queries, as one query's
        about = {"hidden_states": hidden, "position_embeddings": rotation, "cache_position": position}
        return self._press.score(module, hidden, keys, values, seen, about)[0]

    def _load(self, path):
        if path == self._path:
            return
        model = hf.load(path)
        self._body = hf.body(model)
        self._press.post_init_from_model(model)
        self._path = path

    def _check(self, module, hidden, keys, rotation):
        """Throws where the weights are not the evaluated model's: they make other keys."""
        from kvpress.utils import get_prerope_key_states
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        own = get_prerope_key_states(module, hidden)
        own = apply_rotary_pos_emb(own, own, *rotation)[1]
        if own.shape != keys.shape:
            raise ValueError(f"model {self._path}: makes keys {list(own.shape[1:])}, the engine {list(keys.shape[1:])}")
        difference = ((own - keys).norm() / keys.norm()).item()
        if not difference < _LARGEST_DIFFERENCE:
            raise ValueError(f"model {self._path}: its keys differ from the engine's by {difference:.2g}; name the model "
                             "that is evaluated")


@budget_rule
def kvpress_layers(division, *, press: Annotated[str, "the press, as Python writes it"] = "PyramidKVPress()"):
    """Gives each layer what the press gives it."""
    built = hf.build(press)
    if not hasattr(built, "get_layer_budget"):
        raise ValueError(f"press {press}: found no budgets of layers, expected PyramidKVPress")
    built.compression_ratio = 1 - division.share / division.n
    depth = types.SimpleNamespace(num_hidden_layers=division.depth)
    module = types.SimpleNamespace(layer_idx=division.first_layer, config=depth)
    return torch.full((1, division.kv_heads), built.get_layer_budget(module, division.n))


if __name__ == "__main__":
    print(pathlib.Path(__file__).resolve())
