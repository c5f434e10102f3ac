"""What a method keeps of one prompt, as arrays and a picture."""

import json
import pathlib
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import program
from .methods import Method
from .running import plugins_of, settings_of, with_settings

if TYPE_CHECKING:
    import numpy


def inspect(
    prompt: str | Sequence[int],
    method: str | dict[str, Any],
    *options: str,
    methods: Sequence[type[Method] | Method] = (),
    steps: int = 0,
) -> "Inspection":
    """Compresses a prompt, text or token ids, and returns an Inspection. `method` is written as in a config, or in the
    short form of the command line; `methods` are those of Python that it may name, classes or, where it is no short form,
    objects with settings; `options` are those of the command
    `kvarena inspect` ("--model", "smollm2-135m"). With `steps` so many tokens are decoded under the method.

    >>> kept = inspect("A quick brown fox jumps over the lazy dog. A quick brown fox sleeps.", "streaming_llm:tokens=6")
    >>> kept.positions[0][0].tolist()
    [0, 1, 2, 3, 15, 16]
    >>> kept.mask.shape, kept.mask.sum(axis=-1).min().item()
    ((30, 3, 17), 6)
    >>> kept.resident_bytes, kept.full_bytes
    (371520, 737280)
    """
    with tempfile.TemporaryDirectory() as folder:
        found, picture = pathlib.Path(folder) / "found.json", pathlib.Path(folder) / "kept.svg"
        plugins = [word for file in plugins_of(methods, pathlib.Path(folder) / "inspect") for word in ("--plugin", str(file))]
        asked = ["--prompt", prompt] if isinstance(prompt, str) else ["--ids", ",".join(map(str, prompt))]
        written = method if isinstance(method, str) else json.dumps(with_settings(method, settings_of(methods)))
        words = [*plugins, "inspect", *asked, "--method", written, "--steps", str(steps), *options]
        program.run(*words, "--output", str(found), "--picture", str(picture))
        return Inspection(json.loads(found.read_text(encoding="utf-8")), picture.read_text(encoding="utf-8"))


class Inspection:
    """A method's effect on one prompt. `picture` is an SVG, which a notebook shows; `facts` all that the program says."""

    def __init__(self, facts: dict[str, Any], picture: str) -> None:
        self.facts = facts
        self.picture = picture
        self.tokens: list[str] = facts["tokens"]
        self.resident_bytes: int = facts["resident_bytes"]
        self.full_bytes: int = facts["full_bytes"]

    @property
    def positions(self) -> "list[list[numpy.ndarray]]":
        """The positions that each head holds after the prompt, ascending: [layers][kv_heads] arrays of int32."""
        import numpy

        return [[numpy.array(head, dtype=numpy.int32) for head in layer["positions"]] for layer in self.facts["layers"]]

    @property
    def mask(self) -> "numpy.ndarray":
        """Which positions are held: bool, [layers, kv_heads, tokens]."""
        import numpy

        positions = self.positions
        mask = numpy.zeros((len(positions), len(positions[0]), len(self.tokens)), dtype=bool)
        for layer, heads in enumerate(positions):
            for head, held in enumerate(heads):
                mask[layer, head, held] = True
        return mask

    def _repr_svg_(self) -> str:
        return self.picture

    def __repr__(self) -> str:
        share = self.resident_bytes / self.full_bytes
        return f"{json.dumps(self.facts['method'])} on {len(self.tokens)} tokens: {share:.1%} of full KV's bytes"
