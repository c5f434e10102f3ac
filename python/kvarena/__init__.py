"""Methods for KV caches in Python, and results of runs as data frames.

    kvarena --plugin mine.py run config.json     runs what mine.py defines with `scorer` or `Scorer`
    kvarena.run(config, methods=[MyScorer])      the same from Python
    kvarena.open("run.db").samples()             reads what a run stored
"""

from .methods import Layer, Range, Scorer, scorer
from .program import Refused
from .results import Results, open
from .running import run

__all__ = ["Layer", "Range", "Refused", "Results", "Scorer", "open", "run", "scorer"]
