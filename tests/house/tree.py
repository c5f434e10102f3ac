"""The files of the tree under check, and their C++ sources split into code, comments and strings."""

import functools
import os
import pathlib
import re
import subprocess

SOURCE_SUFFIXES = {".h", ".hpp", ".cpp", ".cu", ".cuh"}
SCOPE = re.compile(
    r"""
    \bnamespace\s*(?P<namespace>[\w:]*)\s*\{
  | \b(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+(?:\[\[\w+\]\]\s*|alignas\([^)]*\)\s*)*
    (?P<type>\w+(?:::\w+)*)(?:\s+final)?\s*(?::(?!:)[^;{()]*)?\{
  | (?P<open>\{)
  | (?P<close>\})
    """,
    re.VERBOSE,
)

SOURCE_FOLDERS = ("kernels", "harness", "methods", "datasets", "metrics", "reports")

TOKEN = re.compile(
    r"""
    (?P<line_comment>//[^\n]*)
  | (?P<block_comment>/\*.*?\*/)
  | (?P<raw>R"(?P<mark>[^()\\\s]{0,16})\((?P<raw_text>.*?)\)(?P=mark)")
  | (?P<string>"(?P<text>(?:\\.|[^"\\\n])*)")
  | (?P<char>'(?:\\.|[^'\\\n])')
    """,
    re.VERBOSE | re.DOTALL,
)


class Source:
    """One C++ or CUDA file."""

    def __init__(self, name, text):
        self.name = name
        self.text = text

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def includes(self):
        """Yields (line, path) of each #include."""
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', self.text, re.MULTILINE):
            yield self.line_of(match.start()), match.group(1)

    def strings(self):
        """Yields (line, text) of each string literal outside #include lines."""
        include_lines = {line for line, _ in self.includes()}
        for match in TOKEN.finditer(self.text):
            if match.group("string") or match.group("raw"):
                line = self.line_of(match.start())
                if line not in include_lines:
                    yield line, match.group("text") if match.group("string") else match.group("raw_text")

    def scopes(self):
        """Yields (line, kind, qualified name, body) of each namespace, and of each type outside of functions.

        An anonymous namespace is called "".
        """
        outer = []  # (kind, name, line, offset of the body)
        for match in SCOPE.finditer(self.code):
            line = self.line_of(match.start())
            if match.group("close"):
                if outer:
                    kind, name, opened, begin = outer.pop()
                    if kind != "block" and all(one[0] != "block" for one in outer):
                        path = "::".join([one[1] for one in outer] + [name])
                        yield opened, kind, path, self.code[begin : match.start()]
            elif match.group("open"):
                outer.append(("block", "", line, match.end()))
            elif match.group("type"):
                outer.append(("type", match.group("type"), line, match.end()))
            else:
                outer.append(("namespace", match.group("namespace"), line, match.end()))

    @functools.cached_property
    def code(self):
        """The text with comments, strings and includes blanked out, line breaks kept."""

        def blank(match):
            return re.sub(r"[^\n]", " ", match.group(0))

        bare = TOKEN.sub(blank, self.text)
        return re.sub(r"^[ \t]*#[ \t]*include[^\n]*", blank, bare, flags=re.MULTILINE)


class Tree:
    """What git tracks or would track under `root`; in a folder without git, every file outside build/."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.names = sorted(name for name in self._list() if (self.root / name).is_file())

    def _list(self):
        if (self.root / ".git").exists():
            listed = subprocess.run(
                ["git", "-c", "safe.directory=*", "ls-files", "-coz", "--exclude-standard"],
                cwd=self.root, capture_output=True, text=True)
            if listed.returncode == 0:
                return [name for name in listed.stdout.split("\0") if name]
        names = []
        for folder, folders, files in os.walk(self.root):
            folders[:] = [name for name in folders if name not in (".git", "build", "__pycache__")]
            names += [str((pathlib.Path(folder) / file).relative_to(self.root)) for file in files]
        return names

    def size(self, name):
        return (self.root / name).stat().st_size

    def text(self, name):
        """The file's text, or None where it is not UTF-8 text."""
        data = (self.root / name).read_bytes()
        if b"\0" in data:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None

    @functools.cached_property
    def sources(self):
        """C++ and CUDA files of the folders that are the program, not its tests."""
        return self._sources(SOURCE_FOLDERS)

    @functools.cached_property
    def test_sources(self):
        return self._sources(("tests",))

    def _sources(self, folders):
        return [
            Source(name, self.text(name) or "")
            for name in self.names
            if pathlib.PurePath(name).suffix in SOURCE_SUFFIXES and name.split("/")[0] in folders
        ]
