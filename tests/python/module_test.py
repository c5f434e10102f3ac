"""kvarena.run, kvarena.open and methods of a notebook, over the program: module_test.py SOURCE PROGRAM."""

import importlib.util
import inspect
import os
import pathlib
import sqlite3
import sys
import tempfile
import types
import unittest

SOURCE, PROGRAM = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(SOURCE / "python"))
os.environ["KVARENA_PROGRAM"] = PROGRAM
HOME = pathlib.Path(os.environ.get("KVARENA_HOME") or pathlib.Path.home() / ".cache" / "kvarena")
for needed, there in {
    "pandas": importlib.util.find_spec("pandas"),
    "cloudpickle": importlib.util.find_spec("cloudpickle"),
    "the default model": (HOME / "models" / "smollm2-135m").exists(),
}.items():
    if not there:
        print(f"skipped: {needed} is absent (scripts/setup)")
        sys.exit(77)

import kvarena  # noqa: E402
from kvarena.running import with_settings  # noqa: E402

# A cell of a notebook: a module without a file.
CELL = types.ModuleType("notebook")
sys.modules["notebook"] = CELL
exec(
    """
import numpy as np
import kvarena

SIGN = -1


def norm(keys, order):
    return SIGN * np.linalg.norm(keys, ord=order, axis=-1)


@kvarena.scorer
def half_norm(layer, *, order: float = 2):
    "Keeps entries with small keys."
    return norm(layer.keys, order)
""",
    vars(CELL),
)

FILE = """from __future__ import annotations

import numpy as np
import kvarena


class InFile(kvarena.Scorer):
    "Keeps entries with small keys."

    def __init__(self, order: float = 2):
        self.order = order

    def score(self, layer):
        return -np.linalg.norm(layer.keys, ord=self.order, axis=-1)
"""

CONFIG = {
    "name": "module",
    "models": ["smollm2-135m"],
    "engine": {"max_new_tokens": 6, "noise_floor": 0},
    "workloads": [{"name": "needle", "words": [100], "samples": 3}],
    "methods": [
        {"name": "full"},
        {"name": "knorm", "keep": 0.5, "label": "built in"},
        {"name": "half_norm", "keep": 0.5, "label": "in a cell"},
    ],
}


class Module(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.database = pathlib.Path(cls.folder.name) / "run.db"
        cls.results = kvarena.run(CONFIG, methods=[CELL.half_norm], database=cls.database)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_a_method_of_a_cell_answers_as_its_twin(self):
        samples = self.results.samples().set_index(["method", "sample_id"])
        self.assertEqual(len(samples), 9)
        own, twin = samples.loc["in a cell"], samples.loc["built in"]
        self.assertEqual(list(own["prediction"]), list(twin["prediction"]))
        self.assertEqual(list(own["kept_bytes_fraction"]), list(twin["kept_bytes_fraction"]))

    def test_frames_hold_what_the_database_holds(self):
        rows = sqlite3.connect(self.database).execute(
            "SELECT method, metric, mean FROM v_scores WHERE metric IN ('needle', 'kl_mean_nats')"
        )
        summary = self.results.summary().set_index("method")
        count = 0
        for method, metric, mean in rows:
            self.assertEqual(summary.loc[method, metric], mean)
            count += 1
        self.assertGreaterEqual(count, 3)
        self.assertEqual(list(summary["n"]), [3, 3, 3])

    def test_metrics_have_units(self):
        units = self.results.summary().attrs["units"]
        self.assertEqual(units["kept_bytes_fraction"], "fraction")
        self.assertEqual(units, self.results.samples().attrs["units"] | units)

    def test_series_have_a_row_a_step(self):
        series = self.results.series("kl_nats")
        lengths = series.groupby(["method", "sample_id"]).step.agg(["min", "max", "count"])
        self.assertTrue((lengths["min"] == 0).all() and (lengths["max"] + 1 == lengths["count"]).all())
        self.assertEqual(set(series.unit), {"nats"})
        self.assertEqual(series.attrs["units"], {"kl_nats": "nats"})

    def test_units_are_there_whatever_the_frame(self):
        self.assertEqual(self.results.units["kl_nats"], "nats")
        self.assertLessEqual(set(self.results.summary().attrs["units"]), set(self.results.units))
        if importlib.util.find_spec("polars") is None:
            self.skipTest("polars is absent")
        frames = kvarena.open(self.database, library="polars")
        self.assertEqual(frames.summary()["n"].to_list(), [3, 3, 3])
        self.assertEqual(frames.samples()["kl_nats"].to_list(), list(self.results.samples()["kl_nats"]))

    def test_samples_come_in_the_config_s_order(self):
        methods = list(dict.fromkeys(self.results.samples().method))
        self.assertEqual(methods, ["full", "built in", "in a cell"])

    def test_inspection_is_arrays_and_a_picture(self):
        prompt = [7 + 3 * i % 40 for i in range(30)]
        kept = kvarena.inspect(prompt, {"name": "half_norm", "keep": 0.5}, methods=[CELL.half_norm])
        twin = kvarena.inspect(prompt, "knorm:keep=0.5", steps=2)
        self.assertEqual(kept.mask.shape, (30, 3, 30))
        self.assertEqual(kept.mask.sum(), 30 * 3 * 15)
        self.assertTrue((kept.mask == twin.mask).all())
        self.assertEqual(kept.positions[2][1].tolist(), kept.mask[2, 1].nonzero()[0].tolist())
        self.assertEqual(len(twin.facts["steps"]), 2)
        self.assertTrue(kept._repr_svg_().startswith("<svg"))
        self.assertIn("30 tokens", repr(kept))
        with self.assertRaisesRegex(kvarena.Refused, "nowhere"):
            kvarena.inspect(prompt, "nowhere")

    def test_differences_are_paired(self):
        paired = self.results.paired().dropna(subset=["difference"])
        self.assertGreater(len(paired), 6)
        self.assertEqual(set(paired.baseline), {"full"})
        self.assertEqual(self.results.paired().attrs["units"]["kl_nats"], "nats")
        self.assertTrue((paired.value - paired.baseline_value == paired.difference).all())

    def test_the_report_is_the_pages(self):
        page = self.results.report()
        self.assertIn("<html", page)
        self.assertIn("in a cell", page)
        self.assertEqual(page, page._repr_html_())
        self.assertEqual(page, self.results._repr_html_())
        self.assertLess(len(repr(page)), 50)

    def test_equal_runs_compare_as_equal(self):
        text, held = self.results.compare(self.results)
        self.assertTrue(held, text)

    def test_a_second_run_evaluates_nothing(self):
        again = kvarena.run(CONFIG, methods=[CELL.half_norm], database=self.database)
        self.assertEqual(len(again.samples()), 9)
        self.assertEqual(len(again.sql("SELECT DISTINCT run_id FROM v_samples")), 1)

    def small(self, name, entries, *options, methods=()):
        """One sample under these entries; how many cells each has had, edited ones counted anew."""
        workload = {"name": "needle", "words": [60], "samples": 1}
        config = CONFIG | {"name": name, "methods": [{"name": "full"}, *entries], "workloads": [workload]}
        database = pathlib.Path(self.folder.name) / f"{name}.db"
        results = kvarena.run(config, *options, methods=methods, database=database)
        self.assertEqual(len(results.failures()), 0)
        cells = results.sql("SELECT method, count(*) AS n FROM cells GROUP BY method")
        return results, dict(zip(cells.method, cells.n))

    def test_an_edited_method_is_evaluated_anew(self):
        file = pathlib.Path(self.folder.name) / "edited.py"
        entries = [
            {"name": "knorm", "keep": 0.5, "label": "built in"},
            {"name": "in_file", "keep": 0.5, "label": "own"},
            {"name": "adakv", "scorer": {"name": "in_file"}, "keep": 0.5, "label": "inside"},
            {"name": "half_norm", "keep": 0.5, "label": "cell"},
        ]

        def cells(text=FILE):
            file.write_text(text)
            return self.small("edited", entries, "--plugin", str(file), methods=[CELL.half_norm])

        self.assertEqual(set(cells()[1].values()), {1})
        results, again = cells()
        self.assertEqual(set(again.values()), {1}, "nothing was edited")
        _, edited = cells(FILE.replace("-np", "+np"))
        self.assertEqual(edited, {"full": 1, "built in": 1, "own": 2, "inside": 2, "cell": 1})
        CELL.SIGN = 1
        self.addCleanup(setattr, CELL, "SIGN", -1)
        self.assertEqual(cells(FILE.replace("-np", "+np"))[1], edited | {"cell": 2})
        cards = results.sql("SELECT method, json_extract(protocol_json, '$.method_sha256') AS hash FROM cells "
                            "WHERE superseded = 0").set_index("method").hash
        self.assertEqual(cards[["full", "built in"]].isna().all(), True)
        self.assertEqual(cards["own"], cards["inside"])
        self.assertRegex(cards["cell"], "^[0-9a-f]{64}$")
        self.assertNotIn("differ in", results.report())

    def test_an_object_stands_for_its_class_with_settings(self):
        file = pathlib.Path(self.folder.name) / "in_file.py"
        file.write_text(FILE)
        spec = importlib.util.spec_from_file_location("in_file", file)
        module = sys.modules["in_file"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        entries = [
            {"name": "in_file", "keep": 0.5},
            {"name": "in_file", "keep": 0.5, "order": 3.0},
            {"name": "half_norm", "keep": 0.5},
            {"name": "adakv", "scorer": "half_norm", "keep": 0.5},
        ]
        objects = [module.InFile(order=1), CELL.half_norm(order=1)]
        results, _ = self.small("objects", entries, methods=objects)
        settings = results.sql("SELECT settings_json AS text FROM cells WHERE method <> 'full' ORDER BY position").text
        for text, order in zip(settings, (1, 3, 1, 1), strict=True):
            self.assertRegex(text, f'"order":{order}\\b')
        predictions = results.samples().set_index("method").prediction
        self.assertEqual(predictions.iloc[1], predictions.iloc[3])
        entry = {"name": "half_norm", "matrix": {"order": [2]}}
        self.assertEqual(with_settings([entry, "knorm"], {"half_norm": {"order": 1}}), [entry, "knorm"])
        with self.assertRaisesRegex(ValueError, "two objects of half_norm"):
            kvarena.run(CONFIG, methods=[CELL.half_norm(order=1), CELL.half_norm()], database=self.database)
        with self.assertRaisesRegex(TypeError, "ordr"):
            CELL.half_norm(ordr=1)

    def test_what_is_exported_is_annotated(self):
        def functions(value):
            if inspect.isclass(value):
                for name, item in vars(value).items():
                    item = getattr(item, "fget", item)
                    if inspect.isfunction(item) and (name == "__init__" or not name.startswith("_")):
                        yield item
            else:
                yield value

        for name in kvarena.__all__:
            for function in functions(getattr(kvarena, name)):
                signature = inspect.signature(function)
                said = [parameter.annotation for key, parameter in signature.parameters.items() if key != "self"]
                self.assertNotIn(inspect.Parameter.empty, [*said, signature.return_annotation], function.__qualname__)
        self.assertTrue((pathlib.Path(kvarena.__file__).parent / "py.typed").is_file())

    def test_refusals_are_the_programs_words(self):
        with self.assertRaisesRegex(kvarena.Refused, "half_nrm"):
            kvarena.run(CONFIG | {"methods": [{"name": "half_nrm"}]}, database=self.database)
        with self.assertRaisesRegex(FileNotFoundError, "nowhere.db"):
            kvarena.open("nowhere.db")
        with self.assertRaisesRegex(ValueError, "no database of kvarena"):
            kvarena.open(__file__)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
