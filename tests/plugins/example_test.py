"""The example project builds outside the tree, against the build folder and against an installed one, and its method runs.

    python3 tests/plugins/example_test.py build/release/bin/kvarena SOURCE_FOLDER BUILD_FOLDER CMAKE COMPILER
"""

import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

KVARENA, SOURCE, BUILD, CMAKE, COMPILER = sys.argv[1:6]
sys.path.insert(0, str(pathlib.Path(SOURCE) / "tests/end_to_end"))
import tiny_model  # noqa: E402


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, **options).stdout


class Example(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def build(self, *where):
        """Builds a copy, so that nothing of the tree is near. Returns the library."""
        shutil.copytree(pathlib.Path(SOURCE) / "examples/plugin", self.folder / "mine")
        run(CMAKE, "-S", self.folder / "mine", "-B", self.folder / "out", f"-DCMAKE_CXX_COMPILER={COMPILER}", *where)
        run(CMAKE, "--build", self.folder / "out")
        return self.folder / "out" / "libvalue_norm.so"

    def test_against_the_build_folder_and_through_a_run(self):
        library = self.build(f"-Dkvarena_DIR={BUILD}/plugin")
        tiny_model.write(self.folder / "model", SOURCE)
        (self.folder / "config.json").write_text(json.dumps({
            "name": "mine", "methods": ["full", {"name": "value_norm", "keep": 0.5}],
            "engine": {"max_new_tokens": 4, "noise_floor": 0},
            "models": [{"name": "tiny", "path": str(self.folder / "model"), "dtype": "f32", "template": "none"}],
            "workloads": [{"name": "fact_qa", "things": 3, "filler": 0, "examples": 0, "samples": 2}]}))
        environment = os.environ | {"KVARENA_HOME": str(self.folder)}
        database = self.folder / "results.db"
        said = run(KVARENA, "--plugin", library, "run", self.folder / "config.json", "--quiet", "--database", database,
                   env=environment)
        self.assertIn("4 evaluated", said)
        connection = sqlite3.connect(database)
        self.addCleanup(connection.close)
        dropped = connection.execute("select activity_json from v_samples where method like 'value_norm%'").fetchall()
        self.assertTrue(all(json.loads(text)["entries_dropped"] > 0 for text, in dropped), dropped)
        name, sha256, detail = connection.execute(
            "select name, sha256, detail_json from run_inputs where kind = 'plugin'").fetchone()
        self.assertEqual(name, "value_norm 1.0")
        self.assertEqual(sha256, run("sha256sum", library).split()[0])
        self.assertEqual(json.loads(detail)["methods"], ["value_norm"])
        cards = connection.execute("select method_name, json_extract(protocol_json, '$.method_sha256') from cells")
        self.assertEqual(dict(cards), {"full": None, "value_norm": sha256})

    def test_against_an_installed_tree(self):
        prefix = self.folder / "installed"
        run(CMAKE, "--install", BUILD, "--prefix", prefix)
        library = self.build(f"-DCMAKE_PREFIX_PATH={prefix}")
        self.assertIn("value_norm", run(prefix / "bin/kvarena", "--plugin", library, "methods", "value_norm"))
        commands = json.loads(run("cat", self.folder / "out" / "compile_commands.json")) if (
            self.folder / "out" / "compile_commands.json").exists() else []
        for command in commands:
            self.assertNotIn(f"-I{SOURCE} ", command["command"])


unittest.main(argv=sys.argv[:1])
