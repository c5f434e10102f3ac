"""scripts/mutate: what it plants in C++ text and where not, and a whole run over a tree of one source and one test."""

import importlib.machinery
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import mutants  # noqa: E402


def after(text):
    """{kind: lines} of what can be planted in a line of C++."""
    found = {}
    for bug in mutants.bugs_in("x.cpp", text):
        found.setdefault(bug.kind, []).append(bug.after)
    return found


class Operators(unittest.TestCase):
    def test_a_comparison_is_off_by_one_or_flipped(self):
        found = after("x = a.b[2 * i] < f(c, 1) && d;")
        self.assertEqual(["x = a.b[2 * i] <= f(c, 1) && d;"], found["off by one"])
        self.assertEqual(["x = a.b[2 * i] >= f(c, 1) && d;"], found["flipped comparison"])
        self.assertEqual(["return ready() == 3;"], after("return ready() != 3;")["flipped comparison"])

    def test_a_term_is_dropped_or_changes_its_sign(self):
        found = after("y = a * b + c - d;")
        self.assertIn("y = a * b - c - d;", found["flipped sign"])
        self.assertIn("y = a * b + c + d;", found["flipped sign"])
        self.assertEqual({"y = a * b - d;", "y = c - d;", "y = a * b + c;", "y = a + c - d;", "y = b + c - d;"},
                         set(found["dropped term"]))
        self.assertEqual(["sum -= x[i];"], after("sum += x[i];")["flipped sign"])
        self.assertEqual(["return x;"], after("return -x;")["flipped sign"])

    def test_operands_arguments_and_axes_change_places(self):
        self.assertIn("z = (b - a) / c;", after("z = (a - b) / c;")["swapped operands"])
        self.assertEqual(["z = 1 - (a + b);"], after("z = a + b - 1;")["swapped operands"])
        self.assertEqual(["f(1, n, m);"], after("f(1, m, n);")["swapped arguments"])
        self.assertEqual(["t = x[j][i];"], after("t = x[i][j];")["swapped axes"])
        self.assertEqual(["t = x.sum(-2);"], after("t = x.sum(-1);")["swapped axes"])
        self.assertNotIn("swapped arguments", after("x = std::min(m, n);"))
        self.assertEqual(["x = std::max(m, n);"], after("x = std::min(m, n);")["flipped comparison"])

    def test_constants_and_conditions(self):
        self.assertEqual(["x = f(a, 4);"], after("x = f(a, 3);")["wrong constant"])
        self.assertEqual(["x = (2 * 0.5f);"], after("x = 0.5f;")["wrong constant"])
        self.assertEqual(["bool b = false;"], after("bool b = true;")["wrong constant"])
        self.assertEqual(["if (!(f(x))) return;"], after("if (f(x)) return;")["flipped comparison"])

    def test_what_computes_nothing_is_left_alone(self):
        for text in ('// a + b < 3', '/* 1 + 2 */', '#if X > 3\n', 's = "a + b < 3";', 'KVARENA_ASSERT(a < b, f(1));',
                     'require(k >= 0 && k <= n, "k");', 'fail({.place = a + b});', 'v.reserve(2 * n);', 'constexpr int k = 4;',
                     'template <int N = 3>', 'p("bits", bits_)\n    .min(1)\n    .max(8);', 'std::array<float, 4> x;',
                     'float x[4];', 'T* f(const T& a, T* b);', 'KVARENA_CODEC(Kivi, {.name = "k", .order = 1});',
                     'fetch(x + 64);', 'void fetch_rows(int n) {\n  ask(n + 1);\n}\n', '  int64_t bits_ = 2;', 'virtual int64_t bytes() const = 0;', 'auto y = static_cast<int64_t>(x);', 'std::string s = "a" + b;'):
            self.assertEqual({}, after(text), text)

    def test_brackets_of_templates_are_no_comparisons(self):
        self.assertEqual({"flipped sign", "dropped term"}, set(after("y = f<T>(x) + std::vector<A<B>>(n).size();")))

    def test_operands_end_where_statements_and_heads_do(self):
        self.assertIn("for (auto v : x) s -= v;", after("for (auto v : x) s += v;")["flipped sign"])
        self.assertEqual(["if (c) x[i] - y(j);"], after("if (c) x[i] + y(j);")["flipped sign"])
        self.assertNotIn("dropped term", after("for (i = n; f(i); i += k) g(i);"))  # it would have no end

    def test_a_switch_keeps_lines_and_what_is_computed_without_it(self):
        text = "int f(int a, int b) {\n  return a * 3 +\n         (b - 1) * 2;\n}\n"
        bugs = mutants.bugs_in("x.cpp", text)
        chosen = {}
        for number, bug in enumerate(bugs, 1):
            if mutants.apart([*chosen.values(), bug]):
                chosen[number] = bug
        planted = mutants.switched(text, chosen)
        self.assertGreater(len(chosen), 1)
        self.assertEqual(text.count("\n"), planted.count("\n"))
        for number, bug in chosen.items():
            self.assertIn(f"kvarena_mutant == {number} ? ({bug.text})", planted.splitlines()[bug.line - 1])


SOURCE = """namespace kernels {
int clamped(int x, int high) {
  constexpr int kLow = 2;
  if (x < kLow) return kLow;
  return x > high ? high : x;
}
int turns(int x) {
  while (x > 9) {
    x = x - 10;
  }
  return x;
}
}  // namespace kernels
"""
TEST = """namespace kernels {
int clamped(int, int);
int turns(int);
}
int main() {
  using namespace kernels;
  return clamped(1, 5) == 2 && clamped(3, 5) == 3 && clamped(7, 5) == 5 && turns(25) == 5 ? 0 : 1;
}
"""
NINJA = """rule cxx
  command = c++ -O1 -o $out -c $in
rule ar
  command = ar rcs $out $in
rule link
  command = : && c++ $in -o $out && :
build kernels/clamped.o: cxx ../../kernels/clamped.cpp
build test.o: cxx ../../tests/test.cpp
build libkernels.a: ar kernels/clamped.o
build bin/kernels_test: link test.o libkernels.a
"""


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        for name, text in (("kernels/clamped.cpp", SOURCE), ("tests/test.cpp", TEST), ("build/release/build.ninja", NINJA)):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        (self.root / "scripts").mkdir()
        for name in ("mutate", "mutants.py"):
            shutil.copy(ROOT / "scripts" / name, self.root / "scripts" / name)
        build = self.root / "build/release"
        entries = [{"directory": str(build), "file": str(self.root / name), "command": f"c++ -O1 -o {target} -c {self.root / name}"}
                   for name, target in (("kernels/clamped.cpp", "kernels/clamped.o"), ("tests/test.cpp", "test.o"))]
        (build / "compile_commands.json").write_text(json.dumps(entries))

    def mutate(self, *words):
        run = subprocess.run([sys.executable, self.root / "scripts/mutate", *words], capture_output=True, text=True, timeout=250)
        self.assertEqual(0, run.returncode, run.stdout + run.stderr)
        return run.stdout

    def test_bugs_are_caught_kept_explained_and_leave_no_trace(self):
        words = ["--count", "4", "--json", str(self.root / "found.json")]
        first = self.mutate(*words)
        found = json.loads((self.root / "found.json").read_text())
        self.assertEqual(4, len(found))
        self.assertIn("caught", {row["result"] for row in found.values()})
        survivors = [key for key, row in found.items() if row["result"] == "survived"]
        self.assertTrue(survivors, "x < kLow and x <= kLow are one")
        self.assertIn(found[survivors[0]]["after"], first)
        self.assertEqual(SOURCE, (self.root / "kernels/clamped.cpp").read_text())

        again = self.mutate(*words)  # nothing is left to try
        self.assertNotIn("compiling", again)
        (self.root / "tests/mutants.txt").write_text("# Survivors\n\n" + "".join(f"{key}\nBoth are one.\n\n" for key in survivors))
        told = self.mutate(*words)
        self.assertIn("explained: Both are one.", told)
        self.assertNotIn(" + ", told)


class Explained(unittest.TestCase):
    def test_every_bug_that_is_explained_can_be_planted(self):
        loaded = importlib.machinery.SourceFileLoader("mutate", str(ROOT / "scripts/mutate")).load_module()
        keys = set(loaded.explained())
        for name in {key.splitlines()[0] for key in keys}:
            planted = {bug.key for bug in mutants.bugs_in(name, (ROOT / name).read_text())}
            self.assertEqual(set(), {key for key in keys if key.startswith(f"{name}\n")} - planted)


if __name__ == "__main__":
    unittest.main()
