"""environment.yml, Dockerfile and apptainer.def are well formed and ask for what scripts/setup asks for."""

import json
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def packages(name):
    return set((ROOT / "scripts" / name).read_text().split())


def shell_is_sound(text):
    return subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True).stderr


class Recipes(unittest.TestCase):
    def test_conda_environment_stands_for_every_package(self):
        lines = [line for line in (ROOT / "environment.yml").read_text().splitlines() if not line.startswith("#")]
        start = lines.index("dependencies:")
        self.assertEqual(["name: kvarena", "channels:", "  - conda-forge"], lines[:start])
        stood_for = set()
        for line in lines[start + 1:]:
            self.assertRegex(line, r"^  - [a-z0-9_-]+( [<>=0-9.,]+)? *(# .+)?$")
            comment = line.partition("# ")[2]
            stood_for.update(word for word in comment.split() if word in packages("packages.txt") | packages("packages.test.txt"))
        self.assertEqual(set(), packages("packages.txt") - stood_for)

    def test_dockerfile(self):
        text = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
        steps = [line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
        self.assertEqual("FROM", steps[0][0])
        for word, rest in steps:
            self.assertIn(word, {"FROM", "RUN", "ENV", "COPY", "WORKDIR", "ENTRYPOINT"})
            if word == "RUN":
                self.assertEqual("", shell_is_sound(rest))
            if word == "ENTRYPOINT":
                self.assertEqual(["kvarena"], json.loads(rest))
        self.assert_it_builds_with_our_scripts(text)

    def test_apptainer_recipe(self):
        text = (ROOT / "apptainer.def").read_text()
        head, *parts = re.split(r"^%(\w+)\n", text, flags=re.MULTILINE)
        sections = dict(zip(parts[::2], parts[1::2]))
        self.assertIn("Bootstrap: docker\nFrom: debian:12-slim", head)
        self.assertEqual({"files", "post", "environment", "runscript"}, set(sections))
        for name in ("post", "environment", "runscript"):
            self.assertEqual("", shell_is_sound(sections[name]), name)
        self.assert_it_builds_with_our_scripts(sections["post"])

    def assert_it_builds_with_our_scripts(self, text):
        """Packages are named in scripts/ alone, and what is called there exists."""
        self.assertIn("scripts/build release kvarena", text)
        self.assertIn("cmake --install build/release", text)
        for script in re.findall(r"scripts/\w+", text):
            self.assertTrue((ROOT / script).is_file(), script)
        self.assertNotRegex(text, r"\blib[a-z0-9]+-dev\b")


if __name__ == "__main__":
    unittest.main()
