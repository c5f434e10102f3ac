"""Results of runs as data frames, read from a database of `kvarena run` (docs/results-database.md).

    results = kvarena.open("run.db")
    results.summary()                      # a row a method and workload, a column a metric
    results.samples().query("method == 'snapkv keep=0.25'")
    results                                # in a notebook: the report

Frames are pandas' where it is installed, else polars'; `library="polars"` chooses. pandas frames carry the units of their
metrics in `frame.attrs["units"]`. polars frames have no attributes: there `results.units`, which has them all, serves.
"""

import importlib.util
import json
import os
import pathlib
import sqlite3
import tempfile
from collections.abc import Sequence
from typing import Any

from . import program

Frame = Any  # pandas.DataFrame or polars.DataFrame

_CELL = ["experiment", "kind", "model", "workload", "method"]


def open(path: str | os.PathLike, library: str | None = None) -> "Results":
    """The results in a database. Raises FileNotFoundError, and ValueError for another file or another frame library."""
    return Results(path, library)


class Results:
    """What a database holds.

    >>> results
    kvarena.open('...run.db'): 2 cells, 4 samples
    >>> summary = results.summary()
    >>> summary.method.tolist(), summary.n.tolist()
    (['full', 'knorm keep=0.5'], [2, 2])
    >>> summary.attrs["units"]["kl_nats"], results.units["resident_bytes"]
    ('nats', 'bytes')
    >>> results.samples().shape[0], results.series("kl_nats").step.min().item()
    (4, 0)
    >>> text, nothing_worse = results.compare(results)
    >>> nothing_worse
    True
    """

    def __init__(self, path: str | os.PathLike, library: str | None = None) -> None:
        self.path = pathlib.Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"{path}: no such file; `kvarena run --database {path}` makes it")
        self._library = library or next((name for name in ("pandas", "polars") if importlib.util.find_spec(name)), None)
        if self._library not in ("pandas", "polars"):
            raise ValueError(f"{self._library or 'no frame library'}; expected pandas or polars, installed by pip")
        try:
            self._rows("SELECT 1 FROM v_cells LIMIT 1")
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{path}: no database of kvarena ({error})") from None

    @property
    def units(self) -> dict[str, str]:
        """The unit of each metric and series."""
        rows = self._rows("SELECT DISTINCT metric, unit FROM v_scores UNION SELECT DISTINCT name, unit FROM series")
        return {row["metric"]: row["unit"] for row in rows}

    def cells(self) -> Frame:
        """A row a cell: its state, how many samples are done, why it failed."""
        return self.sql("SELECT * FROM v_cells")

    def summary(self, clock: str | None = None) -> Frame:
        """A row a cell, a column a metric: its mean over the cell's samples, and their number `n`. `clock` chooses
        among measured and modelled times where a metric has both."""
        where, values = ("WHERE clock IN ('none', ?)", [clock]) if clock else ("", [])
        rows = self._rows(
            f"SELECT {', '.join(_CELL)}, n, metric, mean AS value, unit FROM v_scores {where} ORDER BY experiment, position",
            values,
        )
        return self._wide(rows, _CELL, ["n"])

    def samples(self) -> Frame:
        """A row a sample of a cell: prediction, references, finish reason, and a column a metric."""
        rows = self._rows(
            f"SELECT {', '.join('s.' + name for name in _CELL)}, s.sample_id, s.prompt_tokens, s.output_tokens,"
            " s.prediction, s.references_json, s.finish_reason, s.active, v.metric, v.value, v.unit"
            " FROM v_samples s JOIN cells c ON c.cell_id = s.cell_id"
            " LEFT JOIN sample_values v ON v.cell_id = s.cell_id AND v.sample_id = s.sample_id"
            " ORDER BY c.experiment, c.position, s.sample_index"
        )
        for row in rows:
            references = row.pop("references_json")
            row["references"] = json.loads(references) if references else None
        kept = ["prompt_tokens", "output_tokens", "prediction", "references", "finish_reason", "active"]
        return self._wide(rows, [*_CELL, "sample_id"], kept)

    def series(self, name: str | None = None) -> Frame:
        """Numbers along a sample's steps, rounds or repeats, one a row: `kl_nats`, `inter_token_latency_ms`, ... of this
        name, or of all."""
        where, values = ("AND t.name = ?", [name]) if name else ("", [])
        return self.sql(
            f"SELECT {', '.join('c.' + column for column in _CELL)}, t.sample_id, t.name, t.unit, j.key AS step, j.value"
            f" FROM series t JOIN cells c USING (cell_id), json_each(t.values_json) j WHERE c.superseded = 0 {where}"
            " ORDER BY c.experiment, c.position, t.sample_id, t.name, j.key",
            values,
        )

    def paired(self) -> Frame:
        """A row a sample, method and metric: its value beside the baseline's on the same prompt."""
        return self.sql("SELECT * FROM v_paired WHERE comparable = 1 ORDER BY experiment, position, sample_index")

    def failures(self) -> Frame:
        """Cells without scores, why, and the last lines that their process or their Python traceback left."""
        return self.sql("SELECT * FROM v_failures")

    def sql(self, query: str, values: Sequence[Any] = ()) -> Frame:
        """Any query, as a frame; columns `unit` and `metric` or `name` beside each other become its units."""
        connection = self._connect()
        try:
            cursor = connection.execute(query, values)
            rows, columns = cursor.fetchall(), [column[0] for column in cursor.description]
        finally:
            connection.close()
        named = next((name for name in ("metric", "name") if name in columns), None)
        units = {}
        if named and "unit" in columns:
            units = {row[columns.index(named)]: row[columns.index("unit")] for row in rows}
        return self._frame(rows, columns, units)

    def report(self, *options: str) -> "Report":
        """The report of `kvarena report`: an HTML page, which a notebook shows; `options` are the command's ("--baseline",
        "snapkv")."""
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "report.html"
            program.run("report", "--database", str(self.path), "--out", str(page), *options)
            return Report(page.read_text(encoding="utf-8"))

    def compare(self, other: "Results | str | os.PathLike", *options: str) -> tuple[str, bool]:
        """What `kvarena compare` says of this run and a later one. Returns (text, whether nothing became worse)."""
        path = other.path if isinstance(other, Results) else other
        finished = program.run("compare", str(self.path), str(path), *options, allowed=(0, 1))
        return finished.stdout, finished.returncode == 0

    def _repr_html_(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        cells = self._rows("SELECT count(*) AS cells, total(done_samples) AS samples FROM v_cells")[0]
        return f"kvarena.open({str(self.path)!r}): {cells['cells']} cells, {cells['samples']:.0f} samples"

    def _connect(self):
        return sqlite3.connect(self.path.resolve().as_uri() + "?mode=ro", uri=True)

    def _rows(self, query, values=()):
        connection = self._connect()
        try:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, values)]
        finally:
            connection.close()

    def _wide(self, rows, keys, kept):
        """One row for each value of `keys`, the metrics side by side in the order of their first appearance."""
        wide, units = {}, {}
        for row in rows:
            metric, value, unit = row.pop("metric"), row.pop("value"), row.pop("unit")
            place = wide.setdefault(tuple(row[key] for key in keys), {name: row[name] for name in [*keys, *kept]})
            if metric is not None:
                units[metric] = unit
                place[metric] = value
        columns = [*keys, *kept, *units]
        return self._frame([[row.get(column) for column in columns] for row in wide.values()], columns, units)

    def _frame(self, rows, columns, units):
        if self._library == "pandas":
            import pandas

            frame = pandas.DataFrame(rows, columns=columns)
            frame.attrs |= {"units": units} if units else {}
            return frame
        import polars

        return polars.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)


class Report(str):
    """An HTML page that a notebook shows."""

    def _repr_html_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return "a report in HTML, which a notebook shows"
