"""Methods for KV caches in Python, and results of runs as data frames.

    kvarena --plugin mine.py run config.json     runs what mine.py defines with `scorer`, `Codec`, `budget_rule`, ...
    kvarena.run(config, methods=[MyScorer])      the same from Python
    kvarena.open("run.db").samples()             reads what a run stored
    kvarena.inspect("A prompt", "snapkv:keep=0.5")   shows what a method keeps of a prompt
"""

from .inspecting import Inspection, inspect
from .methods import BudgetRule, Codec, Division, Entries, Layer, Range, Retriever, Scorer, Step, budget_rule, scorer
from .program import Refused
from .results import Results, open
from .running import run

__all__ = [
    "BudgetRule",
    "Codec",
    "Division",
    "Entries",
    "Inspection",
    "Layer",
    "Range",
    "Refused",
    "Results",
    "Retriever",
    "Scorer",
    "Step",
    "budget_rule",
    "inspect",
    "open",
    "run",
    "scorer",
]
