"""Every step of docs/add-a-method.md is done as printed, on a tiny model; the method is the very skeleton, as a plugin.

    python3 tests/docs/tutorial_test.py build/release/bin/kvarena SOURCE_FOLDER PLUGIN
"""

import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import unittest

KVARENA, SOURCE, PLUGIN = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
sys.path.insert(0, str(SOURCE / "tests/end_to_end"))
import tiny_model  # noqa: E402

PAGE = (SOURCE / "docs/add-a-method.md").read_text()
COMMANDS = [line.strip().partition("  #")[0].strip() for line in PAGE.splitlines() if line.startswith("    ")]


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL).group(1)


class Tutorial(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/kvarena").symlink_to(KVARENA)
        (self.folder / "methods/compression").mkdir(parents=True)
        (self.folder / "methods/CMakeLists.txt").touch()
        (self.folder / "configs").mkdir()
        tiny_model.write(self.folder / "tiny", SOURCE, window=65536)

    def shell(self, command, **environment):
        return subprocess.run(
            ["bash", "-ec", command], cwd=self.folder, text=True, capture_output=True, stdin=subprocess.DEVNULL,
            env=os.environ | {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "KVARENA_HOME": str(self.folder),
                              **environment})

    def test_the_skeleton_holds_the_rule_of_the_page(self):
        command = next(line for line in COMMANDS if "new-method" in line)
        run = self.shell(command)
        self.assertEqual(0, run.returncode, run.stderr)
        text = (self.folder / "methods/compression/my_idea.cpp").read_text()
        rule = " ".join(re.sub(r"//.*", "", block("cpp")).split())
        self.assertIn(rule, " ".join(text.split()))

    def test_commands_run_as_printed(self):
        config = json.loads(block("json"))
        config["models"] = [{"name": "tiny", "path": str(self.folder / "tiny"), "dtype": "f32", "template": "none"}]
        config["engine"] = {"max_new_tokens": 4}
        for workload in config["workloads"]:
            workload["limit"] = 1
        (self.folder / "my_idea.json").write_text(json.dumps(config))
        (self.folder / "page.txt").write_text("All the world's a stage, and all the men and women merely players. " * 20)
        ours = [line for line in COMMANDS if line.startswith("kvarena ") and "new-method" not in line]
        self.assertGreaterEqual(len(ours), 7)
        for command in ours:
            if " inspect " in command:
                command += f" --model {self.folder}/tiny"
            run = self.shell(command, KVARENA_PLUGINS=str(PLUGIN))
            self.assertEqual(0, run.returncode, f"{command}\n{run.stdout}{run.stderr}")
            if "--dry-run" in command:
                self.assertIn("21 cells", re.search(r"--dry-run +# (.*)", PAGE).group(1))
                self.assertEqual(21, len(re.findall(r"^  \w", run.stdout, re.MULTILINE)), run.stdout)
        for name in ("kept.svg", "my_idea.db", "my_idea.html", "after.db", "configs/schema.json"):
            self.assertTrue((self.folder / name).exists(), name)
        self.assertIn("my_idea", (self.folder / "docs/methods/compression.md").read_text())
        connection = sqlite3.connect(self.folder / "my_idea.db")
        self.addCleanup(connection.close)
        acted = connection.execute("select count(*) from v_samples where method like 'my_idea%' and "
                                   "activity_json like '%entries_dropped%'").fetchone()
        self.assertEqual((6,), acted)

    def test_other_commands_name_what_there_is(self):
        others = [line for line in COMMANDS if not line.startswith("kvarena ")]
        self.assertTrue(others)
        for path in re.findall(r"(?:^|\s)((?:scripts|build)/[\w/]+)", "\n".join(others)):
            there = KVARENA.parent / pathlib.Path(path).name if path.startswith("build/") else SOURCE / path
            self.assertTrue(there.exists(), path)


unittest.main(argv=sys.argv[:1])
