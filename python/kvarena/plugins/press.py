"""Presses of kvpress, unmodified, over what the engine computed: the method `kvpress`.

    kvarena --plugin "$(python -m kvarena.plugins.press)" run config.json

    {"name": "kvpress", "press": "SnapKVPress(window_size=64)", "model": "~/models/llama", "keep": 0.25}

Needs kvpress with its transformers. Of the model, transformers loads the weights that presses read (query projections, the
rotation); keys, values and attention inputs are the engine's, and so are the budget and what is kept.
"""

import ast
import os
import pathlib
from typing import Annotated

import torch

from kvarena import Scorer

_LARGEST_DIFFERENCE = 0.05  # of a layer's keys, relative to their norm: the engine may compute in fewer bits


def build(text):
    """A press of its constructor: names of kvpress, called with literals and other presses."""
    import kvpress

    def value(node):
        if not isinstance(node, ast.Call):
            return ast.literal_eval(node)
        kind = getattr(kvpress, getattr(node.func, "id", ""), None)
        if not isinstance(kind, type):
            raise ValueError(f"press {ast.unparse(node.func)}: kvpress has none of that name")
        return kind(*map(value, node.args), **{word.arg: value(word.value) for word in node.keywords})

    press = value(ast.parse(text.strip(), mode="eval").body)
    if not isinstance(press, kvpress.ScorerPress):
        raise ValueError(f"press {text}: found no ScorerPress; only those give scores, others act inside of attention")
    if isinstance(press, (kvpress.ObservedAttentionPress, kvpress.PyramidKVPress)):
        raise ValueError(f"press {text}: it reads whole attention matrices or sets budgets of its own; see h2o, pyramidkv")
    return press


def load(path):
    """The model of a folder in Hugging Face layout, or of a GGUF file, with what presses expect of its attention."""
    from transformers import AutoModelForCausalLM

    path = pathlib.Path(path).expanduser()
    if not path.exists():
        home = pathlib.Path(os.environ.get("KVARENA_HOME") or pathlib.Path.home() / ".cache" / "kvarena")
        path = home / "models" / path
    files = [path] if path.is_file() else sorted(path.glob("*.gguf"))
    where = (files[0].parent, {"gguf_file": files[0].name}) if files else (path, {})
    model = AutoModelForCausalLM.from_pretrained(where[0], dtype=torch.float32, attn_implementation="eager", **where[1])
    body = getattr(model.model, "language_model", model.model)
    for layer in body.layers:
        layer.self_attn.rotary_emb = body.rotary_emb
    return model.eval(), body


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
        self._press = build(press)
        self._path = model
        self._model = None

    @torch.no_grad()
    def score(self, layer):
        if layer.decoding or layer.n != layer.prompt_tokens:
            raise ValueError("presses score the whole prompt once; found a cache that was compressed or decoded into")
        if self._model is None:
            self._model, self._body = load(self._path)
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
