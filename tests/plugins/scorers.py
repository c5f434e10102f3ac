"""Published scorers, budget rules and a retriever restated in numpy, for comparison with those in C++, and some that
misbehave."""

import math
import os
import signal
from typing import Annotated, Literal

import numpy as np

import kvarena

__version__ = "1.3"


@kvarena.scorer(name="py_knorm", title="L2 norm in Python", paper="arXiv:2406.11430")
def knorm(layer):
    """Keeps entries with small keys."""
    return -np.linalg.norm(layer.keys, axis=-1)


class PyKeydiff(kvarena.Scorer):
    """Keeps the entries whose keys differ most from the mean direction."""

    def score(self, layer):
        keys = layer.keys / np.linalg.norm(layer.keys, axis=-1, keepdims=True)
        anchor = keys.mean(axis=1, keepdims=True)
        return -(keys * anchor).sum(-1) / np.linalg.norm(anchor, axis=-1)


class PySnapkv(kvarena.Scorer):
    """Keeps what the last queries of the prompt attend to."""

    def __init__(
        self,
        window: Annotated[int, kvarena.Range(min=1), "queries that vote"] = 64,
        kernel: Annotated[int, kvarena.Range(min=1, max=99)] = 5,
        pool: Literal["avg", "max"] = "avg",
    ):
        if kernel % 2 == 0:
            raise ValueError("kernel is even")
        self.window = self.recent = window
        self.kernel, self.pool = kernel, pool

    def score(self, layer):
        window = min(self.window, layer.n)
        scores = np.zeros((layer.kv_heads, layer.n), np.float32)
        votes = layer.window_attention(self.window)[:, : layer.n - window] / window
        padded = np.pad(votes, ((0, 0), (self.kernel // 2,) * 2))
        views = np.lib.stride_tricks.sliding_window_view(padded, self.kernel, axis=1)
        votes = views.mean(-1) if self.pool == "avg" else views.max(-1)
        scores[:, : layer.n - window] = layer.group_mean(votes)
        return scores


class PyExpectedAttention(kvarena.Scorer):
    """Attention that Gaussian future queries are expected to pay, times the value's norm."""

    def __init__(self, sinks: int = 4, future: int = 512):
        self.sinks, self.positions = sinks, future
        self.query_moments = (sinks,)

    def score(self, layer):
        d, first = layer.head_dim, self.sinks
        mean, covariance = layer.query_moments(first)
        turn = self._average_rotation(layer)
        mean, covariance = mean @ turn.T, turn @ covariance @ turn.T
        keys = np.repeat(layer.keys[:, first:], layer.group, axis=0)  # [q_heads, n - sinks, d]
        logits = np.einsum("hd,hnd->hn", mean, keys) / np.sqrt(d)
        logits += np.einsum("hnd,hde,hne->hn", keys, covariance, keys) / (2 * d)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        expected = layer.group_mean(weights / weights.sum(-1, keepdims=True))
        scores = np.zeros((layer.kv_heads, layer.n))
        scores[:, first:] = expected * np.linalg.norm(layer.values[:, first:], axis=-1)
        return scores

    def _average_rotation(self, layer):
        angles = (layer.n + np.arange(self.positions))[:, None] * layer.rotation
        cosine, sine = (layer.rotation_magnitude * f(angles).mean(0) for f in (np.cos, np.sin))
        return np.block([[np.diag(cosine), -np.diag(sine)], [np.diag(sine), np.diag(cosine)]])


@kvarena.scorer(window="window", recent="window")
def py_last_votes(layer, *, window: int = 16):
    """Keeps what the last queries attend to, without smoothing."""
    return layer.group_mean(layer.window_attention(window))


@kvarena.budget_rule(name="py_pyramid")
def pyramid(division, *, beta: Annotated[int, kvarena.Range(min=1), "the last layer gets 1/beta of the mean"] = 20):
    """Fewer entries the deeper the layer."""
    share, most = division.share, division.n - division.recent
    lowest = share / beta
    highest = 2 * share - lowest
    if highest >= most:
        lowest, highest = 2 * share - most, most
    own = round(share)
    if division.n >= highest >= lowest >= division.recent:
        own = round(highest - division.first_layer * (highest - lowest) / (division.depth - 1))
    return np.full((1, division.kv_heads), max(1, own))


def compete(division, floor, total):
    """Each head is sure of its best entries, the protected ones first; then the best of all."""
    scores = division.scores.copy()
    for head, count in np.ndenumerate(division.entries):
        scores[head][: division.sinks] = scores[head][count - division.recent : count] = np.inf
    guarded = min(division.capacity, division.sinks + division.recent)
    sure = np.argsort(-scores, axis=-1, kind="stable")[..., : max(1, guarded, int(division.capacity * floor))]
    np.put_along_axis(scores, sure, np.inf, axis=-1)
    best = np.argsort(-scores.reshape(-1), kind="stable")[:total]
    heads = division.layers * division.kv_heads
    return np.bincount(best // division.n, minlength=heads).reshape(division.layers, division.kv_heads)


@kvarena.budget_rule
def py_heads(division, *, floor: float = 0.2):
    """The heads of a layer compete for its entries."""
    return compete(division, floor, division.kv_heads * division.capacity)


@kvarena.budget_rule(whole_cache=True)
def py_global(division):
    """All heads of all layers compete."""
    heads = division.layers * division.kv_heads
    return compete(division, 0, max(heads * division.capacity, math.ceil(division.share * heads - 1e-9)))


class BadRule(kvarena.BudgetRule):
    """Does one thing wrong."""

    def __init__(self, how: Literal["nothing", "made", "shape", "part", "none", "raise"] = "nothing"):
        if how == "made":
            raise ValueError("made wrong")
        self.how = how

    def divide(self, division):
        budgets = np.full((division.layers, division.kv_heads), float(division.capacity))
        budgets[0, 1] = {"part": 7.5, "none": 0}.get(self.how, budgets[0, 1])
        return budgets / undefined if self.how == "raise" else budgets[0] if self.how == "shape" else budgets  # noqa: F821


class PyIdealTopk(kvarena.Retriever):
    """Attends to the entries with the largest true attention."""

    def __init__(self, gqa: Literal["mean", "none"] = "mean"):
        self.gqa = gqa

    def score(self, step):
        keys = np.repeat(step.keys, step.group, axis=0)  # [q_heads, n, d]
        logits = np.einsum("hd,hnd->hn", step.queries, keys) / np.sqrt(step.head_dim)
        if self.gqa == "none":
            return logits
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        return step.group_mean(weights / weights.sum(-1, keepdims=True))


class Misbehaving(kvarena.Scorer):
    """Does one thing wrong."""

    def __init__(
        self,
        how: Literal[
            "nothing", "raise", "shape", "nan", "exit", "kill", "undeclared", "list", "import", "hang", "hang_made"
        ] = "nothing",
    ):
        self.how = how
        while how == "hang_made":
            pass

    def score(self, layer):
        scores = np.zeros((layer.kv_heads, layer.n), np.float32)
        while self.how == "hang":
            pass
        if self.how == "import":
            import nowhere  # noqa: F401
        if self.how == "raise":
            return scores / undefined  # noqa: F821
        if self.how == "shape":
            return scores[:, 1:]
        if self.how == "nan":
            scores[0, 3] = np.nan
        if self.how == "exit":
            os._exit(3)
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "undeclared":
            return layer.prompt_attention
        return scores.tolist() if self.how == "list" else scores
