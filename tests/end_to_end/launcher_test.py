"""What `kvarena` answers from what the build kept is what kvarena-engine says, and needs no libtorch.

    python3 tests/end_to_end/launcher_test.py build/release/bin/kvarena PLUGIN.so
"""

import fcntl
import os
import pathlib
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

KVARENA, PLUGIN = pathlib.Path(sys.argv[1]), sys.argv[2]
ENGINE = KVARENA.with_name("kvarena-engine")


def piped(program, words, **more):
    done = subprocess.run([program, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env=os.environ | {"KVARENA_PLUGINS": ""} | more)
    return done.returncode, done.stdout, done.stderr


def on_a_terminal(program, words, width, **more):
    """(exit code, what a terminal of that width gets)."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    running = subprocess.Popen([program, *words], stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL,
                               env=os.environ | {"KVARENA_PLUGINS": "", "TERM": "xterm"} | more)
    os.close(theirs)
    text = b""
    try:
        while piece := os.read(ours, 65536):
            text += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    return running.wait(), text.decode()


class Launcher(unittest.TestCase):
    def kept(self, words):
        """Whether the answer needs no engine: a copy of the launcher that lies alone can give it."""
        with tempfile.TemporaryDirectory() as folder:
            alone = pathlib.Path(folder) / "kvarena"
            shutil.copy(KVARENA, alone)
            return "belongs beside kvarena" not in piped(alone, words)[2]

    def test_kept_answers_are_the_engines(self):
        method = piped(KVARENA, ["methods"])[1].split()[1]
        metric = piped(KVARENA, ["metrics"])[1].split()[1]
        for words in ([], ["--help"], ["run", "-h"], ["model"], ["model", "logits", "--help"], ["methods"],
                      ["methods", "--json"], ["methods", method], ["methods", "--family", "retrieval"],
                      ["metrics", metric]):
            with self.subTest(words=words):
                self.assertTrue(self.kept(words))
                self.assertEqual(piped(KVARENA, words), piped(ENGINE, words))

    def test_as_wide_and_as_bold_as_the_terminal(self):
        for width, more in ((50, {}), (118, {}), (70, {"NO_COLOR": "1"})):
            for words in (["--help"], ["methods"]):
                with self.subTest(width=width, words=words, more=more):
                    said = on_a_terminal(KVARENA, words, width, **more)
                    self.assertEqual(said, on_a_terminal(ENGINE, words, width, **more))
                    self.assertEqual("\033[1m" in said[1], not more)

    def test_everything_else_is_the_engines(self):
        for words in (["--version"], ["methods", "no-such-method"], ["workloads"], ["methods --json"], ["--halp"]):
            with self.subTest(words=words):
                self.assertFalse(self.kept(words))
                self.assertEqual(piped(KVARENA, words), piped(ENGINE, words))

    def test_plugins_are_asked(self):
        asked = piped(KVARENA, ["methods"], KVARENA_PLUGINS=PLUGIN)
        self.assertEqual(asked[0], 0, asked[2])
        self.assertNotEqual(asked[1], piped(KVARENA, ["methods"])[1])
        self.assertEqual(asked, piped(KVARENA, ["methods", "--plugin", PLUGIN]))

    def test_no_libtorch(self):
        sections = subprocess.run(["readelf", "-d", KVARENA], capture_output=True, text=True, check=True).stdout
        needed = [line for line in sections.splitlines() if "(NEEDED)" in line]
        self.assertTrue(needed)
        self.assertFalse([line for line in needed if "torch" in line])

    def test_a_full_disk_is_told(self):
        with open("/dev/full", "w") as full:
            said = [subprocess.run([program, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
                    for program in (KVARENA, ENGINE)]
        self.assertEqual([done.returncode for done in said], [1, 1])
        self.assertIn("No space left on device", said[0].stderr)
        self.assertEqual(said[0].stderr, said[1].stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
