#!/usr/bin/env python3
"""Golden conversations: the chat templates' own Jinja programs, run by transformers.

    python3 chat.py FOLDER > chat.jsonl

Packages: transformers 5.23.0, jinja2. FOLDER holds NAME.jinja for each name below, the text that the models publish
(tokenizer_config.json, or tokenizer.chat_template of a GGUF file); the texts themselves stay out of the tree. Of
the longer programs the path without tools is enough.
"""
import hashlib
import json
import pathlib
import sys

import transformers
from transformers.utils.chat_template_utils import render_jinja_template

CHATML = ("", "<|im_end|>")
LLAMA = ("<s>", "</s>")
LLAMA3 = ("<|begin_of_text|>", "<|eot_id|>")
GEMMA = ("<bos>", "<eos>")
DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>")
TOKENS = {
    "smollm2": ("<|im_start|>", "<|im_end|>"), "qwen2": CHATML, "qwen2.5": CHATML, "qwen3": CHATML, "chatml": CHATML,
    "llama2": LLAMA, "mistral": LLAMA, "mistral_v3": LLAMA, "mistral_v7": LLAMA,
    "llama3": LLAMA3, "llama3_shared": LLAMA3, "llama3.1": LLAMA3,
    "deepseek_v2": DEEPSEEK, "deepseek_v3": DEEPSEEK, "deepseek_r1": DEEPSEEK,
    "gemma3": GEMMA,
}


def turns(*contents, system=None):
    messages = [] if system is None else [{"role": "system", "content": system}]
    for i, content in enumerate(contents):
        messages.append({"role": "user" if i % 2 == 0 else "assistant", "content": content})
    return messages


COMMON = [
    turns("What is a key-value cache?", system="Answer in one sentence."),
    turns("First", "  An answer with space around it \n", "Second\n\nwith lines", system="Be brief.\n"),
    turns("a", "b", "c", "d", "e", system="s"),
]
WITHOUT_SYSTEM = [
    turns("Hello"),
    turns("  padded  ", "ok", "über 😀 naïve"),
    turns("q", "final answer"),
]
THINKING = [
    turns("1+1?", "<think>\nadd them\n</think>\n\n2", "and 2+2?"),
    turns("1+1?", "<think>\nadd\n</think>\n\n2", "2+2?", "<think>\n\nagain\n\n</think>\n\n\n4"),
    turns("x", "<think></think>y"),
    turns("x", "no thought"),
]
TOOLS = [
    [{"role": "user", "content": "weather?"}, {"role": "assistant", "content": "calling"},
     {"role": "tool", "content": "{\"t\": 3}"}, {"role": "tool", "content": "{\"t\": 4}"},
     {"role": "assistant", "content": "cold"}, {"role": "tool", "content": "late"}],
]
SECOND_SYSTEM = [[{"role": "system", "content": "one"}, {"role": "user", "content": "u"},
                  {"role": "system", "content": "two"}, {"role": "user", "content": "v"}]]


def conversations(name):
    cases = list(COMMON if name != "mistral" else [])
    if name != "mistral_v7":
        cases += WITHOUT_SYSTEM
    if name in ("qwen3", "deepseek_r1", "smollm2"):
        cases += THINKING
    if name in ("qwen3", "qwen2.5"):
        cases += TOOLS
    if TOKENS[name] not in (LLAMA, GEMMA):
        cases += SECOND_SYSTEM
    return cases


def main():
    folder = pathlib.Path(sys.argv[1])
    print(json.dumps({"made_by": f"transformers {transformers.__version__}"}))
    for name, (bos, eos) in TOKENS.items():
        text = (folder / f"{name}.jinja").read_text(encoding="utf-8")
        for messages in conversations(name):
            for prompt in (False, True):
                rendered, _ = render_jinja_template([messages], chat_template=text, add_generation_prompt=prompt,
                                                    bos_token=bos, eos_token=eos)
                print(json.dumps({
                    "template": name, "sha256": hashlib.sha256(text.encode()).hexdigest(), "bos": bos, "eos": eos,
                    "messages": messages, "add_generation_prompt": prompt, "text": rendered[0]}))


if __name__ == "__main__":
    main()
