"""Presses of kvpress, unmodified, over what the engine computed: the method `kvpress`.

    kvarena --plugin "$(python -m kvarena.plugins.press)" run config.json

    {"name": "kvpress", "press": "SnapKVPress(window_size=64)", "model": "~/models/llama", "keep": 0.25}

Needs kvpress with its transformers. Of the model, transformers loads the weights that presses read (query projections, the
rotation); keys, values and attention inputs are the engine's, and so are the budget and what is kept.
"""

import pathlib
from typing import Annotated

import torch

from kvarena import Scorer, hf

_LARGEST_DIFFERENCE = 0.05  # of a layer's keys, relative to their norm: the engine may compute in fewer bits


def require_scores(press, text):
    """Raises where the press is none that scores entries."""
    import kvpress

    if not isinstance(press, kvpress.ScorerPress):
        raise ValueError(
            f"press {text}: found no ScorerPress; only those give scores, others act inside of attention and run beside a"
            ' model with "engine": "transformers"'
        )
    if isinstance(press, (kvpress.ObservedAttentionPress, kvpress.PyramidKVPress)):
        raise ValueError(f"press {text}: it reads whole attention matrices or sets budgets of its own; see h2o, pyramidkv")


class KvPress(Scorer):
    """Keeps what a press of NVIDIA's kvpress scores highest."""

    name = "kvpress"
    title = "kvpress"
    paper = "https://github.com/NVIDIA/kvpress"
    hidden = True

    def __init__(
        self,
        press: Annotated[str, "the press, as Python writes it"] = "KnormPress()",
        model: Annotated[str, "the model under evaluation: a folder, a .gguf file, or one in KVARENA_HOME"] = "smollm2-135m",
    ):
        self._press = hf.build(press)
        self._text = press
        self._path = model
        self._model = None

    @torch.no_grad()
    def score(self, layer):
        require_scores(self._press, self._text)
        if layer.decoding or layer.n != layer.prompt_tokens:
            raise ValueError("presses score the whole prompt once; found a cache that was compressed or decoded into")
        if self._model is None:
            self._model = hf.load(self._path)
            self._body = hf.body(self._model)
            self._press.post_init_from_model(self._model)
        module = self._body.layers[layer.layer].self_attn
        hidden, keys, values = layer.hidden[None], layer.keys[None], layer.values[None]
        position = torch.arange(layer.n)
        rotation = self._body.rotary_emb(hidden, position[None])
        self._check(module, hidden, keys, rotation)
        about = {"hidden_states": hidden, "position_embeddings": rotation, "cache_position": position}
        return self._press.score(module, hidden, keys, values, None, about)[0]

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


if __name__ == "__main__":
    print(pathlib.Path(__file__).resolve())
