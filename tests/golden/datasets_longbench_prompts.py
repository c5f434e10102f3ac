#!/usr/bin/env python3
"""Writes datasets_longbench_prompts.json: SHA-256 of the prompt of every project-made row of LongBench, rendered as
the official pred.py does (prompt_format.format(**row)) with the official config/dataset2prompt.json.

    datasets_longbench_prompts.py LONGBENCH/config/dataset2prompt.json
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
prompts = json.load(open(sys.argv[1], encoding="utf-8"))
hashes = {}
folder = tempfile.TemporaryDirectory()
samples = pathlib.Path(folder.name) / "samples"
subprocess.run([sys.executable, "-B", here / "../../datasets/samples/make.py", samples], check=True)
for path in sorted((samples / "longbench").glob("*.jsonl")):
    task = path.stem.removesuffix("_e")
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    hashes[path.stem] = [hashlib.sha256(prompts[task].format(**row).encode()).hexdigest() for row in rows]
text = json.dumps({"longbench_commit": "2e00731f8d0bff23dc4325161044d0ed8af94c1e", "sha256": hashes}, indent=1)
(here / "datasets_longbench_prompts.json").write_text(text + "\n")
