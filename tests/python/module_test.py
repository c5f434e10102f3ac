"""kvarena.run, kvarena.open and methods of a notebook, over the program: module_test.py SOURCE PROGRAM."""

import importlib.util
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

# A cell of a notebook: a module without a file.
CELL = types.ModuleType("notebook")
sys.modules["notebook"] = CELL
exec(
    """
import numpy as np
import kvarena

@kvarena.scorer
def half_norm(layer, *, order: float = 2):
    "Keeps entries with small keys."
    return -np.linalg.norm(layer.keys, ord=order, axis=-1)
""",
    vars(CELL),
)

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
        self.assertTrue((paired.value - paired.baseline_value == paired.difference).all())

    def test_the_report_is_the_pages(self):
        page = self.results._repr_html_()
        self.assertIn("<html", page)
        self.assertIn("in a cell", page)

    def test_equal_runs_compare_as_equal(self):
        text, held = self.results.compare(self.results)
        self.assertTrue(held, text)

    def test_a_second_run_evaluates_nothing(self):
        again = kvarena.run(CONFIG, methods=[CELL.half_norm], database=self.database)
        self.assertEqual(len(again.samples()), 9)
        self.assertEqual(len(again.sql("SELECT DISTINCT run_id FROM v_samples")), 1)

    def test_refusals_are_the_programs_words(self):
        with self.assertRaisesRegex(kvarena.Refused, "half_nrm"):
            kvarena.run(CONFIG | {"methods": [{"name": "half_nrm"}]}, database=self.database)
        with self.assertRaisesRegex(FileNotFoundError, "nowhere.db"):
            kvarena.open("nowhere.db")
        with self.assertRaisesRegex(ValueError, "no database of kvarena"):
            kvarena.open(__file__)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
