"""Runs the notebooks of examples/notebooks: each cell's output is the committed one. notebooks_test.py SOURCE PROGRAM."""

import importlib.util
import os
import pathlib
import sys
import tempfile
import unittest

SOURCE, PROGRAM = pathlib.Path(sys.argv[1]), sys.argv[2]
HOME = pathlib.Path(os.environ.get("KVARENA_HOME") or pathlib.Path.home() / ".cache" / "kvarena")
for needed, there in {
    **{name: importlib.util.find_spec(name) for name in ("nbclient", "nbformat", "ipykernel", "pandas", "cloudpickle")},
    "the default model (scripts/setup)": (HOME / "models" / "smollm2-135m").exists(),
}.items():
    if not there:
        print(f"skipped: {needed} is absent")
        sys.exit(77)

import nbclient  # noqa: E402
import nbformat  # noqa: E402

os.environ["KVARENA_PROGRAM"] = PROGRAM
os.environ["PYTHONPATH"] = str(SOURCE / "python")
FOLDER = SOURCE / "examples" / "notebooks"


def shown(cell):
    """What a cell prints and its last value, as text: bars, pictures and warnings aside."""
    found = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream" and output.name == "stdout":
            found.append(output.text)
        elif "text/plain" in output.get("data", {}) and not any("widget" in kind for kind in output.data):
            found.append(output.data["text/plain"])
    return "".join(found)


class Notebooks(unittest.TestCase):
    def run_again(self, name):
        committed = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        again = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            nbclient.NotebookClient(again, timeout=300, resources={"metadata": {"path": folder}}).execute()
        outputs = 0
        for old, new in zip(committed.cells, again.cells, strict=True):
            if old.cell_type == "code":
                self.assertEqual(shown(old), shown(new), old.source)
                outputs += bool(shown(old))
        self.assertGreaterEqual(outputs, 3)

    def test_a_method_in_ten_lines(self):
        self.run_again("method_in_ten_lines")

    def test_reading_a_database(self):
        self.run_again("reading_a_database")

    def test_all_are_tested(self):
        self.assertEqual(
            sorted(file.stem for file in FOLDER.glob("*.ipynb")),
            ["method_in_ten_lines", "reading_a_database"],
        )


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
