"""Runs the notebooks of examples/notebooks: each cell's output is the committed one. notebooks_test.py SOURCE PROGRAM;
with --write behind it the outputs are written into them instead."""

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


def widget(output):
    return any("widget" in kind for kind in output.get("data", {}))


def shown(cell):
    """What a cell prints and its last value, as text: bars, pictures and warnings aside."""
    found = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream" and output.name == "stdout":
            found.append(output.text)
        elif "text/plain" in output.get("data", {}) and not widget(output):
            found.append(output.data["text/plain"])
    return "".join(found)


def pictures(cell):
    return sum("image/svg+xml" in output.get("data", {}) for output in cell.get("outputs", []))


def run(name):
    """The notebook with the outputs of a run in a folder of its own."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, timeout=None, record_timing=False, resources=resources).execute()
    return notebook


def write():
    for file in FOLDER.glob("*.ipynb"):
        notebook = run(file.stem)
        for cell in notebook.cells:
            if cell.cell_type == "code":  # bars and warnings are another machine's, a report is large
                cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr" and not widget(output)]
                for output in cell.outputs:
                    if "<!doctype html>" in output.get("data", {}).get("text/html", ""):
                        del output.data["text/html"]
        notebook.metadata.language_info = {"name": "python"}
        nbformat.write(notebook, file)


class Notebooks(unittest.TestCase):
    def run_again(self, name):
        committed = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        again = run(name)
        outputs = 0
        for old, new in zip(committed.cells, again.cells, strict=True):
            if old.cell_type == "code":
                self.assertEqual(shown(old), shown(new), old.source)
                self.assertEqual(pictures(old), pictures(new), old.source)
                outputs += bool(shown(old))
        self.assertGreaterEqual(outputs, 3)

    def test_a_method_in_ten_lines(self):
        self.run_again("method_in_ten_lines")

    def test_a_paper_s_table(self):
        self.run_again("a_papers_table")

    def test_reading_a_database(self):
        self.run_again("reading_a_database")

    def test_all_are_tested(self):
        self.assertEqual(
            sorted(file.stem for file in FOLDER.glob("*.ipynb")),
            ["a_papers_table", "method_in_ten_lines", "reading_a_database"],
        )


if __name__ == "__main__":
    if sys.argv[3:] == ["--write"]:
        write()
    else:
        unittest.main(argv=sys.argv[:1])
