"""What a method's author writes: a scorer or a budget rule, as a function or as a class; a codec or a retriever, as a class.

    @kvarena.scorer(paper="arXiv:2406.11430")
    def l2_norm(layer):
        '''Keeps entries with small keys.'''
        return -layer.keys.norm(dim=-1)          # [kv_heads, n]; the largest scores are kept

Budgets, protected entries, memory and its bytes, drafting for VeriCache and wrapping by AdaKV are the framework's, as for
methods in C++.
"""

import inspect
import re
import typing
from collections.abc import Callable, Sequence
from typing import Any

Array = Any  # a torch tensor where the plugin imported torch, else a numpy array
Number = int | float


class Range:
    """Bounds of a parameter, both inclusive: Annotated[float, Range(min=0, max=1), "what it does"]."""

    def __init__(self, min: Number | None = None, max: Number | None = None) -> None:
        self.min = min
        self.max = max


class Lent:
    """Arrays that lie in shared memory, torch tensors where the plugin imported torch, numpy arrays elsewhere. They are made
    when first asked for, and hold until the method returns."""

    def __init__(self, source: Callable[[str, int], Array]) -> None:
        self._source = source
        self._arrays = {}

    def _array(self, name: str, argument: int = 0) -> Array:
        key = (name, argument)
        if key not in self._arrays:
            self._arrays[key] = self._source(name, argument)
        return self._arrays[key]


class Entries(Lent):
    """Entries of one layer."""

    def __init__(self, facts: dict[str, Any], source: Callable[[str, int], Array]) -> None:
        super().__init__(source)
        self.layer: int = facts["layer"]  # this one's number
        self.layers: int = facts["layers"]
        self.n: int = facts["n"]  # entries of a head
        self.kv_heads: int = facts["kv_heads"]
        self.head_dim: int = facts["head_dim"]

    @property
    def keys(self) -> Array:
        """[kv_heads, n, head_dim], rotated."""
        return self._array("keys")

    @property
    def values(self) -> Array:
        """[kv_heads, n, head_dim]."""
        return self._array("values")

    @property
    def positions(self) -> Array:
        """[kv_heads, n], int64."""
        return self._array("positions")

    @property
    def rotation(self) -> Array:
        """Radians a position, of channel pairs (c, c + head_dim / 2): [head_dim / 2], float64."""
        return self._array("rotation")

    @property
    def rotation_magnitude(self) -> float:
        """Factor on cosine and sine."""
        return float(self._array("rotation_magnitude")[0])


class Grouped(Entries):
    """Entries beside the query heads that read them."""

    def __init__(self, facts: dict[str, Any], source: Callable[[str, int], Array]) -> None:
        super().__init__(facts, source)
        self.q_heads: int = facts["q_heads"]

    @property
    def group(self) -> int:
        """Query heads of a kv head."""
        return self.q_heads // self.kv_heads

    def group_mean(self, per_query_head: Array) -> Array:
        """[q_heads, n] -> [kv_heads, n], the mean over each group of query heads."""
        return per_query_head.reshape(self.kv_heads, self.group, -1).mean(1)


class Step(Grouped):
    """One layer's cache at a step of decoding, and the step's queries."""

    @property
    def queries(self) -> Array:
        """[q_heads, head_dim], rotated."""
        return self._array("queries")


class Layer(Grouped):
    """One layer's cache while a prompt is compressed, and what the prompt's queries made of it."""

    def __init__(self, facts: dict[str, Any], source: Callable[[str, int], Array], scorer: "Scorer") -> None:
        super().__init__(facts, source)
        self.first_head: int = facts["first_head"]  # number of the first kv head: a ragged layer is seen head by head
        self.prompt_tokens: int = facts["prompt_tokens"]
        self.decoding: bool = facts["decoding"]
        self.share: float = facts["share"]  # the budget, entries a head on average before rounding: keep * n
        self.model: str = facts["model"]  # the evaluated model's file or folder
        self._scorer = scorer

    @property
    def prompt_attention(self) -> Array:
        """Attention that each entry received from all prompt queries, summed: [q_heads, n]."""
        return self._needed("prompt_attention")

    @property
    def hidden(self) -> Array:
        """Attention inputs of the prompt: [n, hidden_size]."""
        return self._needed("hidden")

    @property
    def output_projection(self) -> Array:
        """The output projection of each query head, transposed: [q_heads, head_dim, hidden_size]."""
        return self._needed("output_projection")

    @property
    def future_attention(self) -> Array:
        """Attention that each entry will receive from the next `future` tokens of full KV: [q_heads, n]."""
        return self._needed("future")

    def window_attention(self, window: int) -> Array:
        """Attention from the last `window` prompt queries, summed over them: [q_heads, n]."""
        if window > self._scorer.window:
            raise ValueError(f"window_attention({window}) where the scorer's `window` is {self._scorer.window}")
        return self._array("window_attention", window)

    def query_moments(self, left_out: int) -> tuple[Array, Array]:
        """Mean [q_heads, head_dim] and covariance [q_heads, head_dim, head_dim] of the prompt's queries before rotation,
        without the first `left_out`; float64."""
        if left_out not in self._scorer.query_moments:
            raise ValueError(f"query_moments({left_out}) where the scorer's `query_moments` is {self._scorer.query_moments}")
        return self._array("query_mean", left_out), self._array("query_covariance", left_out)

    def _needed(self, name: str) -> Array:
        if not getattr(self._scorer, name):
            raise ValueError(f"layer.{name} where the scorer does not say `{name} = True`")
        return self._array("future_attention" if name == "future" else name)


class Division(Lent):
    """A budget to divide among heads: those of one layer, or of all where the rule says `whole_cache = True`."""

    def __init__(self, facts: dict[str, Any], source: Callable[[str, int], Array]) -> None:
        super().__init__(source)
        self.share: float = facts["share"]  # entries a head on average, before rounding: keep * n
        self.capacity: int = facts["capacity"]  # of a head under equal division: the share rounded down, at least 1
        self.first_layer: int = facts["first_layer"]  # number of the first layer here
        self.layers: int = facts["layers"]  # how many are here
        self.depth: int = facts["depth"]  # how many the model has
        self.kv_heads: int = facts["kv_heads"]
        self.n: int = facts["n"]  # entries of the longest head
        self.sinks: int = facts["sinks"]  # first entries of a head that stay whatever their score
        self.recent: int = facts["recent"]  # last ones

    @property
    def scores(self) -> Array:
        """Scores of entries, [layers, kv_heads, n]; minus infinity behind the last entry of a head that holds fewer."""
        return self._array("scores")

    @property
    def entries(self) -> Array:
        """How many each head holds: [layers, kv_heads], int64."""
        return self._array("entries")


class Method:
    """A subclass's parameters are those of its __init__, with defaults: they appear in configs, in `kvarena methods NAME`
    and in error messages. An object stands for its class with the settings that it was made with."""

    name: str = ""  # in configs; the class's name in snake_case unless said
    title: str = ""  # in tables
    paper: str = ""  # "arXiv:2404.14469, section 4"

    def __new__(cls, *args: Any, **settings: Any) -> "Method":
        made = super().__new__(cls)
        made._made_with = inspect.Signature(_parameters(cls)).bind(*args, **settings).arguments
        return made


class Scorer(Method):
    """Scores entries; the best within the budget stay. What score() reads beside keys and values has to be said, here or
    in __init__, for it is gathered while the prompt is read."""

    window: int = 0  # last queries of the prompt that window_attention() may look at
    prompt_attention: bool = False
    hidden: bool = False
    output_projection: bool = False
    future: int = 0  # tokens of the full-KV continuation: an oracle
    query_moments: Sequence[int] = ()  # numbers of left-out first queries for query_moments()

    sinks: int = 0  # first entries that are kept whatever their score
    recent: int = 0  # last ones

    def score(self, layer: Layer) -> Array:
        """Importance of every entry, [kv_heads, n]; larger is kept, of equal scores the earlier entry."""
        raise NotImplementedError


class Codec(Method):
    """Quantises entries; attention sees what they come back as. Nothing is packed, so bytes are computed from `bits`, and
    tables mark them as simulated."""

    bits: float = 16.0  # of a number of keys and values, with its share of scales and tables
    block: int = 1  # tokens that are quantised together: entries leave the 16-bit tail in whole blocks, the prompt's at once
    residual: int = 0  # newest tokens that stay in 16 bits, beside those of an incomplete block

    def quantise(self, rows: Array, side: str, entries: Entries) -> Any:
        """Returns codes of keys or values, rows [kv_heads, n, head_dim], n a multiple of `block`; `side` is "keys" or
        "values", `entries` says which they are. Keys are rotated."""
        raise NotImplementedError

    def dequantise(self, codes: Any, side: str, entries: Entries) -> Array:
        """Returns rows of the same shape from what quantise() returned."""
        raise NotImplementedError


class Retriever(Method):
    """Chooses the entries that each step attends to; all of them stay."""

    sinks: int = 0  # first entries that are always attended, counted in the budget
    recent: int = 1  # newest ones, the query's own among them
    dense_layers: int = 0  # first layers that attend to everything, unless the user says otherwise

    def score(self, step: Step) -> Array:
        """Importance of every entry for the step's queries: [kv_heads, n], or [q_heads, n] for a choice of each query
        head. The largest within the budget are attended."""
        raise NotImplementedError


class BudgetRule(Method):
    """Divides a budget among heads, under any scorer: {"name": "snapkv", "keep": 0.25, "budget_rule": {"name": ...}}."""

    whole_cache: bool = False  # layers are seen together; else one by one, each before the next one is computed

    def divide(self, division: Division) -> Array:
        """Entries that each head may hold, [layers, kv_heads], whole numbers from 1 on. Asked only where some head holds
        more than the equal division."""
        raise NotImplementedError


class Engine(Method):
    """A model that answers requests by itself, beside the program's own engine; the program has one such file."""

    def answer(self, request: dict[str, Any], channel: Any) -> dict[str, Any]:
        """Returns what the answer took, once the program has said that it ends."""
        raise NotImplementedError


KINDS = (Scorer, Codec, Retriever, BudgetRule, Engine)


def _of_function(kind, act, function, said, attributes):
    """A subclass of `kind` whose method `act` is the function, and whose parameters are the function's beside the first."""
    known = {key for cls in (Method, kind) for key in vars(cls) if not key.startswith("_")} - {act}
    for key in attributes:
        if key not in known:
            raise TypeError(f"kvarena.{_snake(kind.__name__)} has no {key}; it has {', '.join(sorted(known))}")
    parameters = [p for p in inspect.signature(function, eval_str=True).parameters.values()][1:]

    def __init__(self, **settings):
        self._settings = {p.name: p.default for p in parameters} | settings
        for key, value in self._attributes.items():
            setattr(self, key, self._settings[value] if isinstance(value, str) else value)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = inspect.Signature([own] + parameters)
    own_facts = {
        "__init__": __init__,
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "_function": staticmethod(function),
        "_attributes": attributes,
        act: lambda self, seen: self._function(seen, **self._settings),
    }
    return type(function.__name__, (kind,), own_facts | said)


def scorer(
    function: Callable[..., Array] | None = None, *, name: str = "", title: str = "", paper: str = "", **needs: Any
) -> Any:
    """Makes a scorer of score(layer, *, PARAMETERS). `needs` are the attributes of Scorer: window=32, recent=32,
    prompt_attention=True. A number may be given as a parameter's name: window="window".

    >>> @kvarena.scorer(recent="newest")
    ... def small_keys(layer, *, newest: int = 8):
    ...     "Keeps entries with small keys."
    ...     return -(layer.keys**2).sum(-1)
    >>> small_keys.name, small_keys().recent, small_keys(newest=2).recent
    ('small_keys', 8, 2)
    """

    def decorate(function):
        said = {"name": name or function.__name__, "title": title, "paper": paper}
        return _of_function(Scorer, "score", function, said, needs)

    return decorate if function is None else decorate(function)


def budget_rule(function: Callable[..., Array] | None = None, *, name: str = "", whole_cache: bool = False) -> Any:
    """Makes a budget rule of divide(division, *, PARAMETERS).

    >>> @kvarena.budget_rule
    ... def front_heavy(division, *, first: float = 1.5):
    ...     "Gives the first layer `first` times the mean, the last one as much less, and the others what lies between."
    ...     depth = division.first_layer / max(1, division.depth - 1)
    ...     own = int(division.share * (first + (2 - 2 * first) * depth))
    ...     return np.full((1, division.kv_heads), max(1, own))
    >>> front_heavy.name, front_heavy().whole_cache
    ('front_heavy', False)
    """

    def decorate(function):
        said = {"name": name or function.__name__}
        return _of_function(BudgetRule, "divide", function, said, {"whole_cache": whole_cache})

    return decorate if function is None else decorate(function)


def _snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _parameter(method, parameter):
    place = f"parameter {parameter.name} of {method.__name__}"
    if parameter.default is inspect.Parameter.empty:
        raise TypeError(f"{place} has no default")
    found = {"name": parameter.name, "default": parameter.default}
    kind = parameter.annotation
    if typing.get_origin(kind) is typing.Annotated:
        kind, *notes = typing.get_args(kind)
        for note in notes:
            if isinstance(note, str):
                found["doc"] = note
            elif isinstance(note, Range):
                found |= {key: value for key, value in vars(note).items() if value is not None}
    if typing.get_origin(kind) is typing.Literal:
        found["choices"] = list(typing.get_args(kind))
        kind = str
    if kind is inspect.Parameter.empty:
        kind = type(parameter.default)
    if kind not in (bool, int, float, str):
        raise TypeError(f"{place} is a {getattr(kind, '__name__', kind)}; expected bool, int, float or str")
    found["type"] = kind.__name__
    if kind is float:
        found["default"] = float(parameter.default)
    return found


def _parameters(method):
    own = method.__init__ is not object.__init__
    return list(inspect.signature(method.__init__, eval_str=True).parameters.values())[1:] if own else []


def name_of(method):
    """The name of a class in configs."""
    return method.name or _snake(method.__name__)


def describe(method):
    """What the program needs to know of a subclass of one of KINDS, as JSON."""
    summary = (inspect.getdoc(method) or "").split("\n\n")[0].replace("\n", " ") if method.__doc__ else ""
    kind = next(kind for kind in KINDS if issubclass(method, kind))
    return {
        "kind": kind.__name__.lower(),
        "dense_layers": int(getattr(method, "dense_layers", 0)),
        "name": name_of(method),
        "title": method.title or method.name or method.__name__,
        "summary": summary,
        "paper": method.paper,
        "parameters": [_parameter(method, parameter) for parameter in _parameters(method)],
    }
