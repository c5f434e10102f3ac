"""The house rules that a compiler does not check: `check.py [ROOT]` prints each breach and exits 1 if there is one.

Every rule is a function from a Tree to lines "file:line: what is wrong"; check_test.py plants a breach of each.
"""

import pathlib
import re
import sys

from header_names import names_of
from tree import Tree

# Which folder may include which. A folder may always include itself, but for methods: each stands alone.
BELOW_METHOD = {"kernels", "harness/core", "harness/cache", "harness/storage", "harness/cost_model"}
BELOW_ENGINE = BELOW_METHOD | {"harness/method", "harness/model"}
MEASURING = {"datasets", "metrics"}
ARROWS = {
    "kernels": set(),
    "harness/core": set(),
    "harness/cache": {"kernels", "harness/core"},
    "harness/storage": {"kernels", "harness/core", "harness/cache"},
    "harness/cost_model": {"harness/core", "harness/storage"},
    "harness/method": BELOW_METHOD,
    "harness/model": BELOW_METHOD,
    "harness/device": BELOW_METHOD | {"harness/model"},
    "harness/engine": BELOW_ENGINE,
    "harness/results": {"harness/core"},
    "harness/experiment": BELOW_ENGINE | MEASURING | {"harness/engine", "harness/results"},
    # Evaluates samples for the experiment, through the interface that the experiment declares.
    "harness/evaluate": BELOW_ENGINE | MEASURING
    | {"harness/device", "harness/engine", "harness/results", "harness/experiment"},
    "harness/serve": BELOW_ENGINE | {"harness/engine", "metrics"},
    "harness/cli": BELOW_ENGINE | MEASURING
    | {"harness/device", "harness/engine", "harness/results", "harness/experiment", "harness/evaluate", "harness/serve",
       "reports"},
    "methods": BELOW_METHOD | {"harness/method"},
    "datasets": {"harness/core"},
    "metrics": {"harness/core"},
    "reports": {"harness/core", "harness/results", "metrics/statistics.h", "metrics/stored_metrics.h"},
}

TORCH_FOLDERS = {"harness/method", "harness/engine", "methods"}
TORCH_HEADER = re.compile(r"^(ATen|torch|c10|caffe2)/")

# Folders with a namespace of their own; every other one is in kvarena itself or in what it nests there.
OWN_NAMESPACE = {"kernels", "datasets", "metrics", "reports"} | {
    f"harness/{room}" for room in ("cli", "cost_model", "device", "evaluate", "experiment", "results", "serve", "storage")
}

# Names of methods that are plain English too: only a string that is nothing else names the method.
PLAIN_WORDS = {"full", "quest", "random"}
# Names that are also keys of a checkpoint's config.
CONFIG_KEYS = {"sliding_window"}
# Strings that are names of methods by chance: a kind of layers.
NO_METHODS = {"harness/method/layer_choice.cpp": {"full"}}

# Where stored metrics are declared, and strings elsewhere that are their names by chance: keys of a config or an output.
STORED_METRICS = "metrics/stored_metrics.h"
NO_METRICS = {
    "harness/cli/reuse.cpp": {"loaded_bytes"},
    "harness/cost_model/estimate.cpp": {"acceptance_rate", "iteration_ms", "link_bytes", "throughput_tokens_per_s"},
    "harness/evaluate/completion_endpoint.cpp": {"resident_bytes"},
    "harness/experiment/config.cpp": {"attainment", "time_to_first_token_ms"},
    "harness/serve/answer_json.cpp": {"resident_bytes"},
}

LONGEST_README = 40  # lines of a folder's README; the top one is for visitors and may be longer
LARGEST_FILE = 2_000_000
LARGEST_FITTED = 4_000_000  # weights fitted for the default model, below configs/fitted


def folder_of(path):
    """harness/cache/x.h -> harness/cache; kernels/rope/x.h -> kernels; ATen/x.h -> None."""
    parts = path.split("/")
    folder = "/".join(parts[:2]) if parts[0] == "harness" and len(parts) > 2 else parts[0]
    return folder if folder in ARROWS else None


def includes_point_one_way(tree):
    for source in tree.sources:
        folder = folder_of(source.name)
        if folder is None:
            yield f"{source.name}:1: {'/'.join(source.name.split('/')[:2])} has no place in the include graph; give it one in tests/house/check.py"
            continue
        for line, path in source.includes():
            target = folder_of(path)
            if path.startswith("tests/"):
                yield f"{source.name}:{line}: the program includes a test header, {path}"
            elif target is None or path in ARROWS[folder] or target in ARROWS[folder]:
                continue
            elif target == folder == "methods":
                yield f"{source.name}:{line}: a method includes another, {path}; what they share belongs to harness/method"
            elif target != folder:
                allowed = ", ".join(sorted(ARROWS[folder])) or "nothing"
                yield f"{source.name}:{line}: {folder} includes {path}; it may include {allowed}"


def headers_stand_alone(tree):
    """A header with a source of its name is not compiled alone: that source includes it first, and what a precompiled
    header could lend it must be among its includes, or theirs."""
    sources = {source.name: source for source in tree.sources}
    reached = {}

    def reach(name):
        if name not in reached:
            reached[name] = {name}
            for _, path in sources[name].includes() if name in sources else ():
                reached[name] = reached[name] | reach(path)
        return reached[name]

    for header in tree.sources:
        source = sources.get(header.name.removesuffix(".h") + ".cpp") if header.name.endswith(".h") else None
        if source is None:
            continue
        line, first = next(source.includes(), (1, "nothing"))
        if first != header.name:
            yield f"{source.name}:{line}: includes {first} first; its own header, {header.name}, comes first"
        included = reach(header.name)
        for offset, name, givers in names_of(header.code):
            place = f"{header.name}:{header.line_of(offset)}"
            if givers is None:
                yield f"{place}: {name} is in no header of tests/house/header_names.py; add it there"
            elif not any(path == giver or giver.endswith("/") and path.startswith(giver)
                         for path in included for giver in givers):
                yield f"{place}: {name} without <{min(givers)}>"


def libtorch_stays_where_it_belongs(tree):
    for source in tree.sources:
        if any(source.name.startswith(f"{folder}/") for folder in TORCH_FOLDERS):
            continue
        for line, path in source.includes():
            if TORCH_HEADER.match(path):
                yield f"{source.name}:{line}: includes {path}; libtorch is for {', '.join(sorted(TORCH_FOLDERS))} only"


def a_type_is_defined_once(tree):
    """Two types of one qualified name are one type to the linker, but in anonymous namespaces.

    A file *_absent.cpp is linked instead of another one.
    """
    first = {}
    for source in tree.sources:
        if source.name.endswith("_absent.cpp"):
            continue
        for line, kind, name, _ in source.scopes():
            if kind != "type" or "" in name.split("::"):
                continue
            place = first.setdefault(name, f"{source.name}:{line}")
            if place != f"{source.name}:{line}":
                yield f"{source.name}:{line}: a second {name}; the first is in {place}"


def namespaces_follow_folders(tree):
    """Forward declarations may stand in any namespace."""
    owners = {f"kvarena::{folder.split('/')[-1]}": folder for folder in OWN_NAMESPACE}
    for source in tree.sources:
        folder = folder_of(source.name)
        for line, kind, name, body in source.scopes():
            if kind != "namespace" or not re.search(r"[{(=]", body) or not re.match(r"kvarena\b", name):
                continue
            if owners.get("::".join(name.split("::")[:2])) != (folder if folder in OWN_NAMESPACE else None):
                yield f"{source.name}:{line}: namespace {name} in {folder}; these have their own: {', '.join(sorted(owners))}"


def registered_methods(tree):
    """{name: class} of every registration in methods/: KVARENA_SCORER(SnapKv, {.name = "snapkv", ...."""
    registration = re.compile(r'KVARENA_[A-Z]+\(\s*(\w+)\s*,[^;]*?\.name\s*=\s*"([^"]+)"', re.DOTALL)
    return {
        name: type_name
        for source in tree.sources
        if source.name.startswith("methods/")
        for type_name, name in registration.findall(source.text)
    }


def every_method_file_registers(tree):
    for source in tree.sources:
        if source.name.startswith("methods/") and source.name.endswith(".cpp"):
            if not registered_methods_of(source):
                yield f"{source.name}:1: registers no method that this check can read: KVARENA_...(Type, ... {{.name = \"...\""


def every_method_has_a_test(tree):
    for source in tree.sources:
        if source.name.startswith("methods/") and source.name.endswith(".cpp"):
            test = f"tests/{source.name[:-len('.cpp')]}_test.cpp"
            if test not in tree.names:
                yield f"{source.name}:1: has no test of its name, {test}"


def registered_methods_of(source):
    class One:
        sources = [source]

    return registered_methods(One)


def no_method_is_named_outside(tree):
    methods = registered_methods(tree)
    for key in CONFIG_KEYS:
        methods.pop(key, None)
    telling = [name for name in methods if name not in PLAIN_WORDS]
    in_strings = re.compile(r"(?<![\w-])(" + "|".join(map(re.escape, telling)) + r")(?![\w-])") if telling else None
    identifiers = telling + [methods[name] for name in telling]
    in_code = re.compile(r"\b(" + "|".join(map(re.escape, identifiers)) + r")\b") if identifiers else None
    for source in tree.sources:
        if source.name.startswith("methods/"):
            continue
        for line, text in source.strings():
            found = text if text in methods else in_strings and (m := in_strings.search(text)) and m.group(1)
            if found and found not in NO_METHODS.get(source.name, ()):
                yield f'{source.name}:{line}: names the method "{found}"; the harness knows methods only by the registry'
        for match in in_code.finditer(source.code) if in_code else ():
            yield f"{source.name}:{source.line_of(match.start())}: names the method {match.group(1)}; the harness knows methods only by the registry"


def stored_metrics_are_named_once(tree):
    declared = {
        name
        for source in tree.sources
        if source.name == STORED_METRICS
        for name in re.findall(r'(?:StoredMetric k\w+|\.\w+ = )\{"(\w+)"', source.text)
    }
    for source in tree.sources:
        if not source.name.startswith(("harness/", "reports/")):
            continue
        for line, text in source.strings():
            if text in declared and text not in NO_METRICS.get(source.name, ()):
                yield f'{source.name}:{line}: "{text}" is the name of a stored metric; refer to its constant in {STORED_METRICS}'


def every_folder_says_what_it_knows(tree):
    folders = set()
    for name in tree.names:
        parts = name.split("/")[:-1]
        if not parts or parts[0].startswith("."):
            continue
        folders.add(parts[0])
        if parts[0] in ("harness", "methods") and len(parts) > 1:
            folders.add("/".join(parts[:2]))
    for folder in sorted(folders):
        if f"{folder}/README.md" not in tree.names:
            yield f"{folder}/README.md:1: missing; a few lines on what {folder} knows and what it does not know"
    if "README.md" not in tree.names:
        yield "README.md:1: missing"


def readmes_are_short(tree):
    for name in tree.names:
        if name.endswith("/README.md") and (count := len((tree.text(name) or "").splitlines())) > LONGEST_README:
            yield f"{name}:{LONGEST_README + 1}: {count} lines, at most {LONGEST_README}; protocols and formats belong to docs/"


def comments_open_with_their_subject(tree):
    """A block of // lines that opens with a relative clause means nothing without the line above or below it."""
    comment = re.compile(r"\s*///?(?!/)\s*(.*)")
    opening = re.compile(r"(Of|Those|Who|That|What|The same)\b")
    for source in [*tree.sources, *tree.test_sources]:
        inside = False
        for number, line in enumerate(source.text.splitlines(), 1):
            found = comment.match(line)
            if found and not inside and (first := opening.match(found.group(1))):
                yield f'{source.name}:{number}: a comment opens with "{first.group(1)}"; a verb or the noun it describes comes first'
            inside = found is not None


def lines_of(tree):
    """Yields (name, line number, line) of every text file."""
    for name in tree.names:
        text = tree.text(name) if tree.size(name) <= LARGEST_FILE else None
        for number, line in enumerate((text or "").splitlines(), 1):
            yield name, number, line


def no_path_of_one_machine(tree):
    machine_path = re.compile(r"(?:^|[^\w.$})/-])/(?:work|farm|tmp|root|home/\w+|Users/\w+)/\w")
    for name, number, line in lines_of(tree):
        if not name.endswith((".jsonl", ".json")) and machine_path.search(line):
            yield f"{name}:{number}: a path of one machine: {line.strip()[:100]}"


def nothing_is_left_undone(tree):
    mark = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"]) + r")\b")
    for name, number, line in lines_of(tree):
        if not name.endswith((".jsonl", ".json")) and (match := mark.search(line)):
            yield f"{name}:{number}: {match.group(1)}: finish it, or file an issue"


def no_file_is_large(tree):
    for name in tree.names:
        largest = LARGEST_FITTED if name.startswith("configs/fitted/") else LARGEST_FILE
        if tree.size(name) > largest:
            yield f"{name}:1: {tree.size(name)} bytes; files over {largest} do not belong in the tree"


def tests_can_fail(tree):
    hollow = re.compile(r"\b(DISABLED_\w+|GTEST_SKIP\(\)\s*;|EXPECT_TRUE\(true\)|ASSERT_TRUE\(true\)|SUCCEED\(\))")
    for source in tree.test_sources:
        for match in hollow.finditer(source.code):
            yield f"{source.name}:{source.line_of(match.start())}: {match.group(1)}: a test that cannot fail, or skips without a reason"


def every_test_source_is_built(tree):
    """A test file that no CMakeLists.txt of its folder mentions runs nowhere."""
    for source in tree.test_sources:
        path = pathlib.PurePath(source.name)
        if not path.name.endswith("_test.cpp"):
            continue
        for folder in path.parents:
            build_file = f"{folder}/CMakeLists.txt"
            if build_file in tree.names:
                text = tree.text(build_file) or ""
                if path.name not in text and "GLOB" not in text:
                    yield f"{source.name}:1: no test program of {build_file} builds it"
                break


def test_presets_fail_without_tests(tree):
    import json

    if "CMakePresets.json" not in tree.names:
        return
    presets = json.loads(tree.text("CMakePresets.json")).get("testPresets", [])
    inherited = {preset["name"]: preset for preset in presets}
    for preset in presets:
        action, current = None, preset
        while current is not None and action is None:
            action = current.get("execution", {}).get("noTestsAction")
            current = inherited.get(current.get("inherits"))
        if action != "error":
            yield f'CMakePresets.json:1: test preset "{preset["name"]}" lacks noTestsAction: error'


CHECKS = [
    includes_point_one_way,
    headers_stand_alone,
    libtorch_stays_where_it_belongs,
    a_type_is_defined_once,
    namespaces_follow_folders,
    every_method_file_registers,
    every_method_has_a_test,
    no_method_is_named_outside,
    stored_metrics_are_named_once,
    every_folder_says_what_it_knows,
    readmes_are_short,
    comments_open_with_their_subject,
    no_path_of_one_machine,
    nothing_is_left_undone,
    no_file_is_large,
    tests_can_fail,
    every_test_source_is_built,
    test_presets_fail_without_tests,
]


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    tree = Tree(root)
    if not tree.sources:
        sys.exit(f"{root}: no sources to check")
    problems = [problem for check in CHECKS for problem in check(tree)]
    for problem in problems:
        print(problem)
    print(f"{len(CHECKS)} rules over {len(tree.names)} files: {len(problems)} breaches")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
