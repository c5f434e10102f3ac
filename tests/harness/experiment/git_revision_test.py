"""git_revision.cmake says when changed or new files are compiled in.

    python3 tests/harness/experiment/git_revision_test.py CMAKE SCRIPT
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

CMAKE, SCRIPT = sys.argv[1:3]


class GitRevision(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.tree = pathlib.Path(scratch.name) / "tree"
        self.write("methods/one.cpp", "one")
        self.write(".gitignore", "/build/\n")
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.git("-c", "user.name=n", "-c", "user.email=n@n", "commit", "--quiet", "-m", "Begin")

    def write(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *words):
        return subprocess.run(["git", "-C", self.tree, *words], check=True, capture_output=True, text=True).stdout.strip()

    def revision(self):
        output = self.tree / "build/git_revision.cpp"
        output.parent.mkdir(exist_ok=True)
        subprocess.run([CMAKE, f"-DSOURCE={self.tree}", f"-DOUTPUT={output}", "-P", SCRIPT], check=True)
        return output.read_text().partition('return "')[2].partition('"')[0]

    def test_clean_tree(self):
        self.write("notes.txt", "lies beside the program, not in it")
        self.assertEqual(self.git("rev-parse", "HEAD"), self.revision())

    def test_changed_file(self):
        self.write("methods/one.cpp", "two")
        self.assertEqual(self.git("rev-parse", "HEAD") + "-dirty", self.revision())

    def test_new_file_that_is_compiled_in(self):
        self.write("methods/compression/my_idea.cpp", "mine")
        self.assertEqual(self.git("rev-parse", "HEAD") + "-dirty", self.revision())

    def test_outside_git(self):
        subprocess.run(["rm", "-rf", self.tree / ".git"], check=True)
        self.assertEqual("unknown", self.revision())


unittest.main(argv=sys.argv[:1])
