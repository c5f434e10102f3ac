"""The wheel of this build in a fresh environment: wheel_test.py SOURCE BUILD. Nothing of the tree or of Debian's libraries is
used; libtorch is that of the package torch, as scripts/setup unpacked it."""

import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
HOME = pathlib.Path(os.environ.get("KVARENA_HOME") or pathlib.Path.home() / ".cache" / "kvarena")
LIBTORCH = HOME / "libtorch-2.11.0"
for path, what in ((HOME / "packaging", "tools for wheels are"), (LIBTORCH, "the pinned libtorch is"),
                   (HOME / "models" / "smollm2-135m", "the default model is")):
    if not path.exists():
        print(f"skipped: {what} absent (scripts/setup)")
        sys.exit(77)
if sys.version_info < (3, 11):
    print("skipped: scripts/wheel needs Python 3.11")
    sys.exit(77)

# Libraries of the C and C++ runtime, which every system has.
SYSTEM = {"ld-linux-x86-64", "libc", "libdl", "libgcc_s", "libm", "libpthread", "libresolv", "librt", "libstdc++", "libutil",
          "libz"}


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        raise AssertionError(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name).resolve()
        run(SOURCE / "scripts/wheel", BUILD, cls.folder / "dist")
        (cls.wheel,) = (cls.folder / "dist").iterdir()
        run(sys.executable, "-m", "venv", cls.folder / "venv")
        cls.python = cls.folder / "venv/bin/python"
        run(cls.python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", cls.wheel)
        (cls.packages,) = (cls.folder / "venv/lib").glob("python*/site-packages")
        for name in ("torch", "nvidia"):
            (cls.packages / name).symlink_to(LIBTORCH / name)
        cls.environment = {"HOME": str(cls.folder), "KVARENA_HOME": str(HOME), "GOMP_SPINCOUNT": "1000"}  # beside other tests

    def kvarena(self, *words):
        return run(self.folder / "venv/bin/kvarena", *words, env=self.environment, cwd=self.folder)

    def test_it_is_of_every_python_and_of_systems_as_new_as_this(self):
        self.assertRegex(self.wheel.name, r"^kvarena-[0-9.]+-py3-none-(manylinux_2_\d+_x86_64\.?)+\.whl$")

    def test_libraries_come_with_it_with_torch_or_with_the_c_library(self):
        said = run("ldd", self.packages / "kvarena/bin/kvarena", env=self.environment)
        self.assertNotIn("not found", said)
        places = [line.split("=>")[-1].split()[0] for line in said.splitlines() if "/" in line]
        others = [place for place in places if not place.startswith((str(self.packages), str(LIBTORCH)))]
        self.assertLess(10, len(places) - len(others))
        self.assertEqual(set(), {pathlib.Path(place).name.split(".so")[0] for place in others} - SYSTEM)

    def test_it_says_whose_terms_the_libraries_are_under(self):
        (terms,) = self.packages.glob("kvarena-*.dist-info/licenses")
        bundled = {path.name.split("-")[0].split(".")[0] for path in (self.packages / "kvarena.libs").iterdir()}
        self.assertIn("libglpk", bundled)
        self.assertLessEqual({"libglpk40", "libcurl4"}, {path.name for path in terms.iterdir()})
        self.assertTrue((terms / "LICENSE").is_file())

    def test_the_module_is_the_command(self):
        version = self.kvarena("--version")
        self.assertEqual(version, run(self.python, "-m", "kvarena", "--version", env=self.environment))
        self.assertIn(version.split()[1].rstrip(","), self.wheel.name)

    def test_it_has_its_own_files(self):
        listed = json.loads(self.kvarena("workloads", "--json"))
        places = {line["place"] for line in listed if line["status"] == "project-made sample"}
        self.assertLess(5, len(places))
        self.assertTrue(all(place.startswith(str(self.packages / "kvarena/samples")) for place in places), places)

    def test_plugins_run_in_the_python_that_it_is_installed_in(self):
        (self.folder / "mine.py").write_text(
            "import sys\nimport kvarena\n\n@kvarena.scorer\ndef mine(layer):\n    'Keeps.'\n\n"
            "open('ran_in', 'w').write(sys.executable)\n")
        self.assertIn("mine", self.kvarena("--plugin", "mine.py", "methods", "mine"))
        self.assertEqual(str(self.python), (self.folder / "ran_in").read_text())

    def test_its_types_are_known(self):
        self.assertTrue((self.packages / "kvarena/py.typed").is_file())

    def test_quickstart(self):
        shorter = ("timing.repeats=1", "timing.warmup=0", "timing.max_new_tokens=4", "engine.max_new_tokens=16",
                   "engine.noise_floor=0")
        settings = [word for setting in shorter for word in ("--set", setting)]
        self.kvarena("run", "configs/quickstart.json", "--limit", "1", "--quiet", *settings)
        connection = sqlite3.connect(self.folder / "quickstart.db")
        self.addCleanup(connection.close)
        answered_and_timed = 2 * 9 * 3  # nine methods, three workloads
        self.assertEqual([(answered_and_timed,)], connection.execute("select count(*) from v_samples").fetchall())
        self.assertIn("<html", (self.folder / "report.html").read_text())


unittest.main(argv=sys.argv[:1])
