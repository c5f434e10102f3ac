"""A model in Hugging Face's transformers, with presses of kvpress: the engine of models that a config gives
"engine": "transformers" (harness/engine/foreign/transformers_engine.h).

Prompts come as token ids, each new token is chosen by the program from the logits that it gets. Bytes are those that the
cache's tensors hold: presses that mask entries of single heads leave them there.
"""

import contextlib
import importlib.metadata
import time

from kvarena import hf
from kvarena.methods import Engine


def _versions():
    found = []
    for name in ("transformers", "torch", "kvpress"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
        if not found:
            raise ImportError("no transformers in this Python: pip install transformers torch, kvpress for presses")
    return ", ".join(found)


__version__ = _versions()


class Transformers(Engine):
    """One model; requests come one at a time."""

    def __init__(self, model: str = "", dtype: str = "f32", device: str = "cpu", threads: int = 0):
        import torch

        if threads > 0:
            torch.set_num_threads(threads)
        self._model = hf.load(model, dtype, "sdpa", device)
        self._body = hf.body(self._model)

    def answer(self, request, channel):
        """Reads the prompt under the request's method, then feeds what the program answers to each row of logits: a
        token, a number below 0 for going back to the prompt's end, or nothing at the end."""
        import torch

        with torch.no_grad():
            return self._answer(request, channel)

    def _answer(self, request, channel):
        import transformers

        began = time.perf_counter()
        prompt = request["prompt"]
        press = _press(request["method"], len(prompt))
        cache = transformers.DynamicCache(config=self._model.config)
        row, full = self._read(press, prompt, request["chunk"], cache)
        read = time.perf_counter() - began
        told = _facts(self._body, cache, full)
        if request["kept"]:
            told["kept"] = channel.write(_kept(self._body, cache, full), list(full[0][0].shape[:2]))

        start = cache.get_seq_length() if _turns_keys(press) else len(prompt)
        held = [dict(vars(layer)) for layer in cache.layers]
        room = channel.room(list(row.shape))
        began, decoded = time.perf_counter(), None
        while True:  # once, and again behind a token below 0
            last, position = row, start
            for token in request["question"]:
                last, position = self._step(token, position, cache), position + 1
            while len(token := channel.next(room, last)) > 0 and token[0] >= 0:
                last, position = self._step(int(token[0]), position, cache), position + 1
            decoded = decoded or time.perf_counter() - began
            if len(token) == 0:
                return told | {"read_seconds": read, "decode_seconds": decoded}
            for layer, values in zip(cache.layers, held):  # what was appended went into tensors of its own
                vars(layer).update(values)

    def _read(self, press, prompt, chunk, cache):
        """Logits behind the prompt, and each layer's keys and values before the press."""
        full = [None] * len(self._body.layers)

        def note(module, *_):
            if full[module.layer_idx] is None or press is None:
                keys, values = cache.layers[module.layer_idx].keys[0], cache.layers[module.layer_idx].values[0]
                full[module.layer_idx] = (keys.clone() if press else keys, values)

        for layer in self._body.layers:
            layer.self_attn.masked_key_indices = None  # of the request before
        hooks = [layer.self_attn.register_forward_hook(note) for layer in self._body.layers]  # run before the press's
        try:
            with self._attention(press), press(self._model) if press else contextlib.nullcontext():
                for begin in range(0, len(prompt), chunk or len(prompt)):
                    out = self._model(
                        input_ids=self._ids(prompt[begin : begin + (chunk or len(prompt))]),
                        past_key_values=cache,
                        logits_to_keep=1,
                    )
        finally:
            for hook in hooks:
                hook.remove()
        return out.logits[0, -1], full

    @contextlib.contextmanager
    def _attention(self, press):
        """Whole attention matrices for the press that reads them."""
        if hf.reads_attention(press):
            self._model.set_attn_implementation("eager")
        try:
            yield
        finally:
            self._model.set_attn_implementation("sdpa")

    def _step(self, token, position, cache):
        out = self._model(input_ids=self._ids([token]), past_key_values=cache, position_ids=self._ids([position]))
        return out.logits[0, -1]

    def _ids(self, tokens):
        import torch

        return torch.tensor([tokens], device=self._model.device)


def _press(method, tokens):
    """The press of a config's entry under its budget; None for full KV, as which no entry counts too."""
    if method is None or method["name"] == "full":
        return None
    if method["name"] != "kvpress":
        raise ValueError(f'method {method["name"]} is kvarena\'s own; a model with "engine": "transformers" has full and kvpress')
    odd = set(method) - {"name", "press", "model", "keep", "tokens"}
    if odd:
        raise ValueError(f'kvpress: {", ".join(sorted(odd))}: with "engine": "transformers" a press has keep or tokens alone')
    import kvpress

    press = hf.build(method.get("press", "KnormPress()"))
    decoding = (kvpress.DecodingPress, kvpress.PrefillDecodingPress, kvpress.DMSPress)
    if isinstance(press, decoding):
        raise ValueError(f"press {type(press).__name__}: it acts while decoding; only presses of the prompt run here")
    if isinstance(press, kvpress.ComposedPress) and method.get("keep") != 1:
        raise ValueError('press ComposedPress: its presses have ratios of their own, which "keep": 1 leaves as they are')
    keep = method["keep"] if "keep" in method else min(1, method["tokens"] / tokens)
    if keep < 1:  # else the press is left as it is written
        press.compression_ratio = 1 - keep
    return press


def _turns_keys(press):
    """Whether the press gives keys the rotations of their places, behind which the next token comes."""
    if press is None:
        return False
    import kvpress

    turned = isinstance(press, kvpress.FinchPress) and press.rerotate_keys
    return turned or isinstance(press, (kvpress.KeyRerotationPress, kvpress.RestoreKVPress))


def _masked(layer):
    """Entries that attention leaves out though the cache holds them: (sequences, heads, entries)."""
    return getattr(layer.self_attn, "masked_key_indices", None)


def _facts(body, cache, full):
    storages = {}
    dropped, changed = 0, False
    for layer, held, (before, _) in zip(body.layers, cache.layers, full):
        for tensor in vars(held).values():
            if hasattr(tensor, "untyped_storage"):
                storage = tensor.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
        masked = _masked(layer)
        dropped += before.shape[0] * (before.shape[1] - held.keys.shape[2]) + (len(masked[0]) if masked else 0)
        changed = changed or before.shape != held.keys.shape[1:] or not before.equal(held.keys[0])
    return {"bytes": sum(storages.values()), "dropped": dropped, "acted": changed or dropped > 0}


def _kept(body, cache, full):
    """For each layer which entries of which head are attended to, 0 or 1: [kv_heads, n]. An entry is known by its key, or
    by its value where the press turned keys."""
    import torch

    layers = []
    for layer, held, (keys, values) in zip(body.layers, cache.layers, full):
        kept = torch.ones(keys.shape[:2])
        if held.keys.shape[2] < keys.shape[1]:
            for head in range(len(keys)):
                places = _places(keys[head], held.keys[0, head]) or _places(values[head], held.values[0, head])
                if places is None:
                    raise ValueError("the press changed keys and values, so that nobody knows which entries it kept")
                kept[head] = 0
                kept[head, places] = 1
        if (masked := _masked(layer)) is not None:
            kept[masked[1], masked[2]] = 0
        layers.append(kept)
    return layers


def _places(rows, held):
    """Where the held rows are among all; of equal rows the first ones. None where a row is not among them."""
    places = {}
    for place, row in enumerate(_bytes(rows)):
        places.setdefault(row, []).append(place)
    try:
        return [places[row].pop(0) for row in _bytes(held)]
    except (KeyError, IndexError):
        return None


def _bytes(rows):
    import torch

    return [row.tobytes() for row in rows.contiguous().view(torch.uint8).cpu().numpy()]
