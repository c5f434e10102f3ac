#!/usr/bin/env python3
"""Golden encodings of SmolLM2's tokenizer, made by Hugging Face `tokenizers` from the vocabulary in the GGUF file.

    python3 smollm2_tokens.py SmolLM2-135M-Instruct.Q4_1.gguf > smollm2_tokens.jsonl

Packages: gguf 0.19.0, tokenizers 0.23.3. The pre-tokenizer is the one of the published tokenizer.json: digits one by one, then
ByteLevel with its own pattern. Texts are written here, or drawn with a fixed seed from mixed scripts.
"""
import json
import random
import sys

import tokenizers
from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SEED = 20240607
TEXTS = [
    "",
    " ",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    "  leading and trailing  ",
    "tabs\tand\nnew\r\nlines\n\n\nhere",
    "It's we'll they're I'd you've I'm IT'S WE'LL",
    "3.14159 and 1234567890, 2 + 2 = 4; x² ½ Ⅷ ٣٤",
    "def f(x):\n    return [i**2 for i in range(x) if i % 2 == 0]\n",
    "#include <vector>\nint main() { return 0; }\n\t// done",
    "naïve café, Ångström, e\u0301 combining, ﬁ ligature",
    "日本語の文章と中文句子，混在している。",
    "한국어 문장도 있습니다. Русский текст тоже. نص عربي",
    "emoji 😀👩‍👩‍👧‍👦🏳️‍🌈 and flags 🇩🇪",
    "zero\u200bwidth\u00a0nbsp\u3000ideographic\u2028line",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|>text<|im_end|><|im_end|> <repo_name>x<file_sep>",
    "not special: <|im_start |> < |im_end|>",
    "a" * 300,
    "ab" * 200 + " " * 50 + "\n" * 40 + "end",
    "!!!???...---===***___" * 10,
    "\u0000\u0001\u007f\u0085 control \ufeff bom \ufffd replacement",
    "Pneumonoultramicroscopicsilicovolcanoconiosis antidisestablishmentarianism",
    "{\"key\": [1, 2.5e-10, null, true], \"nested\": {\"a\": \"b\\n\"}}",
    "https://example.org/path?query=1&other=%20#frag user@example.com",
]
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz     ABC'''.,;:!?-\n\t0123456789",
    "äöüßéèñçşğøåæœ αβγδεζ абвгд \u0301\u0308",
    "的一是不了人我在有他这为之大来以个中上们 ひらがなカタカナ、。",
    "😀😂🥰👍🏽🇫🇷\u200d\ufe0f \U00020000\U0001F9D1",
    " \n\t\r\u00a0\u2003\u3000ab1",
    "<|im_start|><|im_end|> <repo_name>",
]


def random_texts(count):
    draw = random.Random(SEED)
    for _ in range(count):
        parts = []
        for _ in range(draw.randint(1, 8)):
            alphabet = draw.choice(ALPHABETS)
            parts.append("".join(draw.choice(alphabet) for _ in range(draw.randint(1, 12))))
        yield "".join(parts)


def build(path):
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t, k in zip(tokens, types) if k == 3])
    return tokenizer


def main():
    tokenizer = build(sys.argv[1])
    print(json.dumps({"made_by": f"tokenizers {tokenizers.__version__}", "seed": SEED}))
    for text in TEXTS + list(random_texts(150)):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        line = {
            "text": text,
            "ids": ids,
            "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "decoded_plain": tokenizer.decode(ids, skip_special_tokens=True),
        }
        print(json.dumps(line, ensure_ascii=True))


if __name__ == "__main__":
    main()
