"""Plants one breach of every house rule in a small sound tree and sees that exactly that rule finds it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import check
from tree import Source, Tree

SOUND = {
    "README.md": "kvarena\n",
    "CMakePresets.json": '{"testPresets": [{"name": "release", "execution": {"noTestsAction": "error"}}]}',
    "kernels/README.md": "Knows pointers.\n",
    "kernels/rope/rope.h": "#pragma once\n#include <cstdint>\n",
    "harness/README.md": "The floors.\n",
    "harness/cache/README.md": "Knows segments.\n",
    "harness/cache/segment.h": '#pragma once\n#include "kernels/rope/rope.h"\n',
    "harness/engine/README.md": "Knows sessions.\n",
    "harness/engine/session/session.cpp": '#include "harness/cache/segment.h"\n#include <ATen/ATen.h>\n'
                                  '// snapkv would be kept full here\nint full = 0; const char* kText = "full KV";\n',
    "methods/README.md": "One file a method.\n",
    "methods/compression/README.md": "Dropping.\n",
    "methods/compression/snapkv.cpp": '#include "harness/cache/segment.h"\n'
                                      'KVARENA_SCORER(SnapKv, {.name = "snapkv",\n .title = "SnapKV"});\n',
    "methods/reference/README.md": "Full KV.\n",
    "methods/reference/full.cpp": 'KVARENA_METHOD(Full, Family::reference, {.name = "full"});\n',
    "tests/README.md": "Same paths as the code.\n",
    "tests/kernels/CMakeLists.txt": "kvarena_test(rope_test SOURCES rope_test.cpp)\n",
    "tests/methods/CMakeLists.txt": "kvarena_test(methods_test SOURCES snapkv_test.cpp full_test.cpp idle_test.cpp)\n",
    "tests/methods/compression/snapkv_test.cpp": "TEST(SnapKv, Keeps) {}\n",
    "tests/methods/reference/full_test.cpp": "TEST(Full, Keeps) {}\n",
    "tests/kernels/rope_test.cpp": 'TEST(Rope, Turns) { GTEST_SKIP() << "no AVX-512 on this CPU"; }\n',
}


class PlantedBreach(unittest.TestCase):
    def breaches(self, planted):
        """{rule: [breach]} of the sound tree with some files replaced, added, or (None) removed."""
        with tempfile.TemporaryDirectory() as root:
            for name, text in {**SOUND, **planted}.items():
                if text is None:
                    continue
                path = pathlib.Path(root) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            tree = Tree(root)
            found = {rule.__name__: list(rule(tree)) for rule in check.CHECKS}
            return {rule: lines for rule, lines in found.items() if lines}

    def assert_found(self, planted, rule, place):
        found = self.breaches(planted)
        self.assertEqual([rule], list(found), found)
        self.assertTrue(any(line.startswith(place) for line in found[rule]), found)

    def test_sound_tree_has_no_breach(self):
        self.assertEqual({}, self.breaches({}))

    def test_header_that_its_source_does_not_include_first(self):
        self.assert_found({"kernels/rope/rope.cpp": '#include <vector>\n#include "kernels/rope/rope.h"\n'},
                          "headers_stand_alone", "kernels/rope/rope.cpp:1: includes vector first")

    def test_header_that_names_what_it_does_not_include(self):
        source = {"harness/cache/segment.cpp": '#include "harness/cache/segment.h"\n'}
        lent = {**source, "harness/cache/segment.h": '#pragma once\n#include "kernels/rope/rope.h"\nint64_t a();\n'}
        self.assertEqual({}, self.breaches(lent))
        for name, giver in (("std::vector<int> a();", "vector"), ("uint8_t a();", "cstdint"), ("at::Tensor a();", "ATen/")):
            self.assert_found({**source, "harness/cache/segment.h": f"#pragma once\n{name}\n"},
                              "headers_stand_alone", f"harness/cache/segment.h:2: {name.split('<')[0].split()[0]} without <{giver}>")
        self.assert_found({**source, "harness/cache/segment.h": "#pragma once\nstd::barrier a();\n"},
                          "headers_stand_alone", "harness/cache/segment.h:2: std::barrier is in no header")

    def test_include_that_points_up(self):
        self.assert_found({"harness/cache/segment.h": '\n#include "harness/engine/session/session.h"\n'},
                          "includes_point_one_way", "harness/cache/segment.h:2:")

    def test_kernel_that_knows_the_cache(self):
        self.assert_found({"kernels/rope/rope.h": '#include "harness/cache/segment.h"\n'},
                          "includes_point_one_way", "kernels/rope/rope.h:1:")

    def test_method_that_includes_another_method(self):
        self.assert_found({"methods/reference/full.cpp":
                           '#include "methods/compression/snapkv.h"\n' + SOUND["methods/reference/full.cpp"]},
                          "includes_point_one_way", "methods/reference/full.cpp:1:")

    def test_method_that_includes_the_engine(self):
        self.assert_found({"methods/reference/full.cpp":
                           '#include "harness/engine/session/session.h"\n' + SOUND["methods/reference/full.cpp"]},
                          "includes_point_one_way", "methods/reference/full.cpp:1:")

    def test_report_that_knows_more_of_metrics_than_statistics_and_names(self):
        readme = {"reports/README.md": "Knows tables.\n"}
        for header in ("statistics", "stored_metrics"):
            self.assertEqual({}, self.breaches({**readme, "reports/a.cpp": f'#include "metrics/{header}.h"\n'}))
        self.assert_found({**readme, "reports/a.cpp": '#include "metrics/registry.h"\n'},
                          "includes_point_one_way", "reports/a.cpp:1:")

    def test_program_that_includes_a_test_header(self):
        self.assert_found({"kernels/rope/rope.h": '#include "tests/kernels/random.h"\n'},
                          "includes_point_one_way", "kernels/rope/rope.h:1:")

    def test_folder_without_a_place_in_the_graph(self):
        self.assert_found({"harness/extra/README.md": "?\n", "harness/extra/a.cpp": "\n"},
                          "includes_point_one_way", "harness/extra/a.cpp:1:")

    def test_libtorch_in_the_cache(self):
        self.assert_found({"harness/cache/segment.h": "#include <ATen/core/Tensor.h>\n"},
                          "libtorch_stays_where_it_belongs", "harness/cache/segment.h:1:")

    def test_type_defined_twice_in_a_namespace(self):
        first = {"harness/cache/segment.h": "namespace kvarena {\nclass Run final : public Base {\n};\n}\n"}
        planted = "harness/engine/session/session.cpp"
        for second in ("struct Run {};", "enum class Run : int { a };", "namespace inner { } union Run { int a; };"):
            self.assert_found({**first, planted: "namespace kvarena {\n" + second + "\n}\n"},
                              "a_type_is_defined_once", f"{planted}:2:")
        for other in ("class Run;", "namespace { class Run {}; }", "namespace inner { class Run {}; }",
                      "class Outer { class Run {}; };", "struct Run::Impl {};", "int f() { struct Run {}; return 1; }"):
            self.assertEqual({}, self.breaches({**first, planted: "namespace kvarena {\n" + other + "\n}\n"}), other)
        absent = {"harness/engine/session_absent.cpp": "namespace kvarena { class Run {}; }\n"}
        self.assertEqual({}, self.breaches({**first, **absent}))

    def test_namespace_of_another_folder(self):
        planted = "kernels/rope/rope.h"
        self.assert_found({planted: "namespace kvarena {\nint turn();\n}\n"}, "namespaces_follow_folders",
                          f"{planted}:1:")
        self.assert_found({"harness/cache/segment.h": "namespace kvarena::kernels { struct Run {}; }\n"},
                          "namespaces_follow_folders", "harness/cache/segment.h:1:")
        for sound in ("namespace kvarena { class Error; }", "namespace kvarena::kernels::bench { int a(); }",
                      "namespace at { class Tensor; }"):
            self.assertEqual({}, self.breaches({planted: sound + "\n"}), sound)

    def test_method_file_that_registers_nothing(self):
        self.assert_found({"methods/compression/idle.cpp": "int idle = 0;\n",
                           "tests/methods/compression/idle_test.cpp": "TEST(Idle, Keeps) {}\n"},
                          "every_method_file_registers", "methods/compression/idle.cpp:1:")

    def test_method_without_a_test(self):
        self.assert_found({"methods/compression/idle.cpp": 'KVARENA_METHOD(Idle, Family::reference, {.name = "idle"});\n'},
                          "every_method_has_a_test", "methods/compression/idle.cpp:1:")

    def test_method_named_in_a_string(self):
        for text in ('bool b = name == "snapkv";', 'auto h = "try snapkv first";', 'auto r = R"(snapkv)";',
                     'bool b = name == "full";'):
            self.assert_found({"harness/engine/session/session.cpp": "\n" + text + "\n"},
                              "no_method_is_named_outside", "harness/engine/session/session.cpp:2:")

    def test_method_named_in_code(self):
        for text in ("SnapKv method;", "int snapkv = 1;"):
            self.assert_found({"harness/engine/session/session.cpp": text},
                              "no_method_is_named_outside", "harness/engine/session/session.cpp:1:")

    def test_method_named_in_a_comment_is_no_breach(self):
        self.assertEqual({}, self.breaches({"harness/engine/session/session.cpp": '// as "snapkv" does\n/* SnapKv */\n'}))

    def test_stored_metric_named_outside_its_declaration(self):
        declaration = {"metrics/README.md": "Knows scores.\n",
                       "metrics/stored_metrics.h": 'constexpr StoredMetric kKlNats{"kl_nats", "KL a step", "nats"};\n'
                                                   'constexpr StoredSpread kWait{.p50 = {"p50_wait", "Wait"}};\n'
                                                   'constexpr StoredSeries kHost{"host_bytes", "bytes"};\n'}
        planted = "harness/engine/session/session.cpp"
        for name in ("kl_nats", "p50_wait"):
            self.assert_found({**declaration, planted: f'\nadd(result, "{name}", 1);\n'},
                              "stored_metrics_are_named_once", f"{planted}:2:")
        for text in ("KL in kl_nats", "host_bytes"):
            self.assertEqual({}, self.breaches({**declaration, planted: f'auto text = "{text}";\n'}))

    def test_folder_without_readme(self):
        self.assert_found({"harness/cache/README.md": None},
                          "every_folder_says_what_it_knows", "harness/cache/README.md:1:")

    def test_long_readme(self):
        self.assert_found({"kernels/README.md": "Knows pointers.\n" * 41}, "readmes_are_short", "kernels/README.md:41:")
        self.assertEqual({}, self.breaches({"README.md": "kvarena\n" * 41, "kernels/README.md": "Knows.\n" * 40}))

    def test_comment_that_opens_with_a_relative_clause(self):
        for words in ("Of all heads.", "Those that are held.", "Who asks.", "What it holds.", "That it runs.", "The same in integers."):
            self.assert_found({"kernels/rope/rope.h": f"int a;\n  /// {words}\nint b;\n"},
                              "comments_open_with_their_subject", "kernels/rope/rope.h:2:")
        self.assert_found({"tests/kernels/rope_test.cpp": "// Of no rows.\n" + SOUND["tests/kernels/rope_test.cpp"]},
                          "comments_open_with_their_subject", "tests/kernels/rope_test.cpp:1:")

    def test_comment_that_goes_on_with_a_relative_clause_is_no_breach(self):
        self.assertEqual({}, self.breaches({"kernels/rope/rope.h": "// Rotates keys, whatever the kind.\n// Those of a cell.\n"
                                                                   "int a;  // Of one head\n// Often called.\n"}))

    def test_path_of_one_machine(self):
        for path in ("/ro" + "ot/models/x.gguf", "/wo" + "rk/main", "/ho" + "me/ada/kv", "/tm" + "p/out.db"):
            self.assert_found({"kernels/README.md": f"Look at {path}.\n"}, "no_path_of_one_machine",
                              "kernels/README.md:1:")

    def test_address_and_relative_path_are_no_machine_path(self):
        self.assertEqual({}, self.breaches({"kernels/README.md": "https://host/work/x ../tmp/x build/tmp/x $HOME/tmp/x\n"}))

    def test_mark_of_unfinished_work(self):
        self.assert_found({"kernels/rope/rope.h": "// TO" + "DO: negative positions\n"},
                          "nothing_is_left_undone", "kernels/rope/rope.h:1:")

    def test_large_file(self):
        self.assert_found({"kernels/big.txt": "x" * (check.LARGEST_FILE + 1)}, "no_file_is_large", "kernels/big.txt:1:")
        self.assert_found({"configs/README.md": "What it knows.\n",
                           "configs/fitted/m/big.safetensors": "x" * (check.LARGEST_FITTED + 1)}, "no_file_is_large",
                          "configs/fitted/m/big.safetensors:1:")

    def test_tests_that_cannot_fail(self):
        for body in ("EXPECT_TRUE(true);", "GTEST_SKIP();", "SUCCEED();"):
            self.assert_found({"tests/kernels/rope_test.cpp": "TEST(Rope, Turns) { " + body + " }\n"},
                              "tests_can_fail", "tests/kernels/rope_test.cpp:1:")
        self.assert_found({"tests/kernels/rope_test.cpp": "TEST(Rope, DISABLED_Turns) {}\n"},
                          "tests_can_fail", "tests/kernels/rope_test.cpp:1:")

    def test_test_that_no_program_builds(self):
        self.assert_found({"tests/kernels/lost_test.cpp": "TEST(A, B) { EXPECT_EQ(1, f()); }\n"},
                          "every_test_source_is_built", "tests/kernels/lost_test.cpp:1:")

    def test_preset_that_accepts_a_run_without_tests(self):
        self.assert_found({"CMakePresets.json": '{"testPresets": [{"name": "debug"}]}'},
                          "test_presets_fail_without_tests", "CMakePresets.json:1:")

    def test_empty_tree_fails(self):
        with tempfile.TemporaryDirectory() as root:
            run = subprocess.run([sys.executable, check.__file__, root], capture_output=True, text=True)
            self.assertNotEqual(0, run.returncode)
            self.assertIn("no sources", run.stderr)


class Reading(unittest.TestCase):
    def test_comment_marks_inside_strings_are_text(self):
        source = Source("a.cpp", 'auto a = "http://x"; // "no"\nauto b = "y\\"z"; /* "no" */ char c = \'"\';\n')
        self.assertEqual([(1, "http://x"), (2, 'y\\"z')], list(source.strings()))

    def test_code_keeps_line_numbers(self):
        source = Source("a.cpp", "/* two\nlines */ int snapkv;\n")
        self.assertEqual(2, source.line_of(source.code.index("snapkv")))


if __name__ == "__main__":
    unittest.main()
