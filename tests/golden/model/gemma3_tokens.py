#!/usr/bin/env python3
"""Golden encodings of Gemma 3's tokenizer, made by Google's sentencepiece from the vocabulary in the GGUF file.

    python3 gemma3_tokens.py gemma-3-270m-q4_k_m.gguf > gemma3_tokens.jsonl

Packages: gguf 0.19.0, sentencepiece 0.2.2 or newer, protobuf. The settings of the model are the published ones: BPE with
byte fallback, no added space, nothing normalised but spaces. Converters write the user-defined symbols of spaces as
spaces; here they are what sentencepiece matches, "\u2581\u2581" and longer. Control tokens written in a text are none for
sentencepiece.
"""
import json
import sys

import sentencepiece
from gguf import GGUFReader
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from smollm2_tokens import TEXTS, random_texts

MORE = [
    "a  b   c    d     e      f\n\n\n\tg\t\th",
    "    indented = {'key': [1, 2]}\n        deeper\n\n\n\n  back",
    "<table><tr><td>x</td></tr></table><b>bold</b><h1>Title</h1> </b",
    "a> </b> <c> </d>x > < y",
    "ৎ ༄ 𒀀 𝔹 😀‍🔥 ꙮ \U000e0041",
    "1234567890 3.14159e-10 0x1F600",
    "word " * 300,
    "\u00a0\u2003x\u3000 y\u200b",
]


def build(path):
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    scores = fields["tokenizer.ggml.scores"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    model = model_pb2.ModelProto()
    for token, score, kind in zip(tokens, scores, types):
        unknown = token == "<unk>"
        piece = token.replace(" ", "\u2581") if kind == 4 else token
        model.pieces.add(piece=piece, score=score, type=2 if unknown else kind)
    model.trainer_spec.model_type = model_pb2.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.vocab_size = len(tokens)
    model.trainer_spec.unk_id, model.trainer_spec.bos_id, model.trainer_spec.eos_id = 3, 2, 1
    model.trainer_spec.pad_id = 0
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def main():
    tokenizer = build(sys.argv[1])
    print(json.dumps({"made_by": f"sentencepiece {sentencepiece.__version__}"}))
    for text in TEXTS + MORE + list(random_texts(60)):
        ids = tokenizer.encode(text)
        print(json.dumps({"text": text, "ids": ids, "decoded": tokenizer.decode(ids)}, ensure_ascii=True))


if __name__ == "__main__":
    main()
