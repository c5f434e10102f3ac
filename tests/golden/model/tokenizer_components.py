#!/usr/bin/env python3
"""Small tokenizers that use every component kvarena reads, with encodings by Hugging Face `tokenizers`.

    python3 tokenizer_components.py | gzip -9n > tokenizer_components.jsonl.gz
    python3 tokenizer_components.py all-minilm-l6-v2/tokenizer.json > minilm_tokens.jsonl

Package: tokenizers 0.23.3. Each line of the first: name, the tokenizer.json itself, and cases of text, ids with special
tokens, ids without, and the decoded text. The second form encodes the same texts with a tokenizer that is too large to
be kept here, truncation and padding off.
"""
import json
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SEED = 99
CORPUS = [
    "the quick brown fox jumps over the lazy dog and the cat",
    "caf\u00e9 na\u00efve \u00fcber \u00c5ngstr\u00f6m, don't we'll they're I'm",
    "x1 = 42; y22 = 3.14 # comment (a+b)*c",
    "\u65e5\u672c\u8a9e \u4e2d\u6587 \ud55c\uad6d\uc5b4 hello world world",
]
TEXTS = [
    "", " ", "the cat", "  two  spaces and\ttab\n\nnewlines \n", "Don't WE'LL they'Re",
    "caf\u00e9 cafe\u0301 \u00c5 A\u030a \ufb01n \u00bd", "x1=42; y22 = 3.14159 # (a+b)", "\u65e5\u672c\u8a9e\u3068\u4e2d\u6587abc \ud55c\uad6d\uc5b4",
    "emoji \U0001f600\U0001f469\u200d\U0001f467 end", "a<mask>b <mask> c  <mask>  d", "<s>the</s> cat<x>", "word<w>word <w> (<w>)",
    "UPPER lower \u0130stanbul \u00df \u03a3", "a\u00a0b\u3000c\u2028d", "\u0000ctrl\u0007 \u200bzw \ufffd", "hello, world! (ok) $5 + <3 ^ ~ `x`",
    "un\u0301believable antidisestablishment " + "q" * 60, "\u2581 already \u2581there", "don't", "...!!!", "12345 6789 \u0663\u0664 \u00b2",
]


def random_texts(count):
    draw = random.Random(SEED)
    pieces = ["the", "cat", " ", "  ", "\n", "\t", "x1", "'s", "'LL", "\u00e9", "e\u0301", "\u65e5\u672c", "\U0001f600", "42", ".", ",", "(", "<mask>",
              "<w>", "<s>", "\u00a0", "\u2581", "Z", "\u017f", "'\u017f", "\u0661", "_", "-", "\r\n", "\u0300"]
    for _ in range(count):
        yield "".join(draw.choice(pieces) for _ in range(draw.randint(1, 14)))


def added(tokenizer):
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=False, normalized=False),
                          AddedToken("<w>", single_word=True, normalized=False), AddedToken("<x>", rstrip=True)])
    return tokenizer


def train(normalizer=None, pre=None, decoder=None, post=None, byte_fallback=False, byte_level=False, unk="<unk>"):
    options = {"byte_fallback": True, "fuse_unk": True} if byte_fallback else {}
    tokenizer = Tokenizer(models.BPE(unk_token=None if byte_level else unk, **options))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    special = [] if byte_level else [unk]
    if byte_fallback:
        special += [f"<0x{b:02X}>" for b in range(256)]
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=420 if byte_level or byte_fallback else 160,
                                  special_tokens=special, initial_alphabet=alphabet, show_progress=False))
    if byte_fallback:  # byte tokens are ordinary members of a SentencePiece vocabulary, not added ones
        data = json.loads(tokenizer.to_str())
        data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
        tokenizer = Tokenizer.from_str(json.dumps(data))
    if decoder is not None:
        tokenizer.decoder = decoder
    added(tokenizer)
    if post is not None:
        tokenizer.post_processor = post
    return tokenizer


def byte_level(*steps, normalizer=None, add_prefix_space=False, use_regex=False):
    steps = list(steps) + [pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)]
    return train(normalizer, pre_tokenizers.Sequence(steps), decoders.ByteLevel(), byte_level=True)


def sentencepiece(normalizer, pre, decoder):
    return train(normalizer, pre, decoder, byte_fallback=True)


def wordpiece(**options):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=50))
    tokenizer.normalizer = normalizers.BertNormalizer(**options)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(CORPUS + TEXTS, trainers.WordPieceTrainer(
        vocab_size=260, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return added(tokenizer)


TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def build():
    split = pre_tokenizers.Split
    yield "gpt2", byte_level(use_regex=True)
    yield "gpt2_prefix_space", byte_level(use_regex=True, add_prefix_space=True)
    yield "tekken", byte_level(split(Regex(TEKKEN), "isolated"))
    yield "tekken_removed_inverted", byte_level(split(Regex(TEKKEN), "removed", invert=True))
    yield "digit_runs_punctuation", byte_level(pre_tokenizers.Digits(individual_digits=False),
                                               pre_tokenizers.Punctuation("contiguous"), use_regex=True)
    for behavior in ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"):
        yield "split_" + behavior, byte_level(split(Regex(r"\s|[aeiou]"), behavior))
        yield "split_string_" + behavior, byte_level(split("t", behavior))
        yield "split_inverted_" + behavior, byte_level(split(Regex(r"\p{L}+"), behavior, invert=True))
    yield "nfc_strip", byte_level(normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Strip()]))
    yield "nfd_strip_accents", byte_level(normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]))
    yield "nfkc_lowercase", byte_level(normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]))
    yield "nfkd", byte_level(normalizer=normalizers.NFKD())
    yield "replace_regex", byte_level(normalizer=normalizers.Replace(Regex(r"\s+"), "_"))
    replace = normalizers.Replace(" ", "\u2581")
    strip = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    yield "llama", sentencepiece(normalizers.Sequence([normalizers.Prepend("\u2581"), replace]), None, decoders.Sequence(strip))
    yield "llama_no_prefix", sentencepiece(replace, None, decoders.Sequence(strip[:3]))
    for scheme in ("always", "first", "never"):
        for cut in (True, False):
            yield f"metaspace_{scheme}_{cut}", sentencepiece(
                None, pre_tokenizers.Metaspace("\u2581", scheme, cut), decoders.Metaspace("\u2581", scheme, cut))
    yield "characters_whitespace", train(pre=pre_tokenizers.Whitespace())
    yield "characters_whitespace_split", train(pre=pre_tokenizers.WhitespaceSplit())
    yield "characters_no_unknown", train(pre=pre_tokenizers.WhitespaceSplit(), unk="[missing]")
    yield "roberta", train(pre=pre_tokenizers.ByteLevel(add_prefix_space=True), decoder=decoders.ByteLevel(), byte_level=True,
                           post=processors.RobertaProcessing(("</s>", 1), ("<s>", 0)))
    yield "template", train(pre=pre_tokenizers.ByteLevel(add_prefix_space=False), decoder=decoders.ByteLevel(), byte_level=True,
                            post=processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(
                                single="<s> <s> $A </s>", special_tokens=[("<s>", 500), ("</s>", 501)])]))
    yield "bert", wordpiece(lowercase=True)
    yield "bert_cased", wordpiece(lowercase=False, handle_chinese_chars=False, clean_text=False)


def cases(tokenizer, texts):
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        yield {"text": text, "ids": ids, "with_special": tokenizer.encode(text).ids,
               "decoded": tokenizer.decode(ids, skip_special_tokens=False),
               "decoded_plain": tokenizer.decode(ids, skip_special_tokens=True)}


def main():
    print(json.dumps({"made_by": f"tokenizers {tokenizers.__version__}", "seed": SEED}))
    if len(sys.argv) > 1:
        tokenizer = Tokenizer.from_file(sys.argv[1])
        tokenizer.no_truncation()
        tokenizer.no_padding()
        for case in cases(tokenizer, TEXTS + list(random_texts(100))):
            print(json.dumps(case))
        return
    for name, tokenizer in build():
        texts = TEXTS + list(random_texts(12))
        print(json.dumps({"name": name, "tokenizer": json.loads(tokenizer.to_str()), "cases": list(cases(tokenizer, texts))}))


if __name__ == "__main__":
    main()
