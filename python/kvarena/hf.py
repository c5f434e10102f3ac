"""Models in Hugging Face's transformers and presses of kvpress, for plugins/press.py and plugins/engine.py."""

import ast
import inspect
import os
import pathlib

_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}  # of torch


def load(path, dtype="f32", attention="eager", device="cpu"):
    """The model of a folder in Hugging Face layout, or of a GGUF file, whose numbers transformers dequantises."""
    import torch
    from transformers import AutoModelForCausalLM, logging

    logging.disable_progress_bar()
    path = pathlib.Path(path).expanduser()
    if not path.exists():
        home = pathlib.Path(os.environ.get("KVARENA_HOME") or pathlib.Path.home() / ".cache" / "kvarena")
        path = home / "models" / path
    files = [path] if path.is_file() else sorted(path.glob("*.gguf"))
    where = (files[0].parent, {"gguf_file": files[0].name}) if files else (path, {})
    dtype = getattr(torch, _NAMES[dtype])
    model = AutoModelForCausalLM.from_pretrained(where[0], dtype=dtype, attn_implementation=attention, **where[1])
    return model.to(device).eval()


def body(model):
    """The decoder, whose layers have the rotation where presses look for it."""
    decoder = getattr(model.model, "language_model", model.model)
    for layer in decoder.layers:
        layer.self_attn.rotary_emb = decoder.rotary_emb
    return decoder


def rotation(decoder, layer, hidden, positions):
    """Cosine and sine, of the layer's own kind where the model has several."""
    kinds = "layer_type" in inspect.signature(decoder.rotary_emb.forward).parameters
    own = {"layer_type": decoder.layers[layer].self_attn.layer_type} if kinds else {}
    return decoder.rotary_emb(hidden, positions, **own)


def build(text):
    """A press of its constructor: names of kvpress, called with literals and other presses."""
    import kvpress

    def value(node):
        if isinstance(node, ast.List):
            return [value(item) for item in node.elts]
        if not isinstance(node, ast.Call):
            return ast.literal_eval(node)
        kind = getattr(kvpress, getattr(node.func, "id", ""), None)
        if not isinstance(kind, type):
            raise ValueError(f"press {ast.unparse(node.func)}: kvpress has none of that name")
        return kind(*map(value, node.args), **{word.arg: value(word.value) for word in node.keywords})

    press = value(ast.parse(text.strip(), mode="eval").body)
    if not isinstance(press, kvpress.BasePress):
        raise ValueError(f"press {text}: found no press")
    return press


def reads_attention(press):
    """Whether the press, or one in it, sums the attention that entries received from all queries."""
    return "ObservedAttentionPress" in repr(press)
