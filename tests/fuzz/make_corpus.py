"""Writes the seeds of every fuzz target: small valid inputs and their usual deformities.

    python3 tests/fuzz/make_corpus.py

What libFuzzer finds beyond them lies beside them under names of its own (scripts/fuzz --minimise). Standard library only.
"""

import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CORPUS = SOURCE / "tests/fuzz/corpus"
made = tempfile.TemporaryDirectory()
SAMPLES = pathlib.Path(made.name) / "samples"
subprocess.run([sys.executable, "-B", SOURCE / "datasets/samples/make.py", SAMPLES], check=True)


def put(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def safetensors(header, data=b""):
    text = header if isinstance(header, str) else json.dumps(header)
    return struct.pack("<Q", len(text.encode())) + text.encode() + data


def gguf_string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(version, pairs, tensors, data=b"", magic=b"GGUF"):
    out = magic + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)
    return out + b"\0" * (-len(out) % 32) + data


def pair(key, kind, value):
    return gguf_string(key) + struct.pack("<I", kind) + value


def tensor(name, shape, kind, offset):
    return gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


one = {"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}
put("safetensors", "one", safetensors(one, struct.pack("<4f", 1, 2, 3, 4)))
put("safetensors", "bf16_and_text", safetensors(
    {"__metadata__": {"made": "here"}, "b": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}, b"\x80\x3f" * 3))
put("safetensors", "empty_tensor", safetensors({"a": {"dtype": "F16", "shape": [0, 4], "data_offsets": [0, 0]}}))
put("safetensors", "huge_shape", safetensors(
    {"a": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 16]}}, b"\0" * 16))
put("safetensors", "overlap", safetensors(
    {"a": one["a"], "b": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}, b"\0" * 16))
put("safetensors", "long_header", struct.pack("<Q", 2**63) + b"{}")
put("safetensors", "deep", safetensors("[" * 500))

general = [pair("general.architecture", 8, gguf_string("llama")), pair("general.alignment", 4, struct.pack("<I", 32)),
           pair("llama.block_count", 4, struct.pack("<I", 1)), pair("llama.attention.head_count", 4, struct.pack("<I", 2)),
           pair("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + gguf_string("a") + gguf_string("bc"))]
put("gguf", "f32", gguf(3, general, [tensor("token_embd.weight", [4, 2], 0, 0)], struct.pack("<8f", *range(8))))
put("gguf", "q8_0", gguf(2, general, [tensor("blk.0.attn_q.weight", [32, 2], 8, 0)], b"\1\x3c" + bytes(range(32)) + b"\1\x3c" + bytes(32)))
put("gguf", "q4_1", gguf(3, general, [tensor("blk.0.ffn_up.weight", [32, 1], 3, 0)], b"\0\x3c\0\x3c" + bytes(16)))
put("gguf", "nothing", gguf(3, [], []))
put("gguf", "many_tensors", b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0))
put("gguf", "long_array", gguf(3, [pair("x", 9, struct.pack("<IQ", 4, 2**61))], []))
put("gguf", "nested_array", gguf(3, [pair("x", 9, struct.pack("<IQIQ", 9, 1, 9, 1))], []))
put("gguf", "far_offset", gguf(3, general, [tensor("token_embd.weight", [4, 2], 0, 2**63)], bytes(32)))


def tokenizer(**changes):
    whole = {"version": "1.0", "added_tokens": [{"id": 4, "content": "<s>", "single_word": False, "lstrip": False,
                                                 "rstrip": False, "normalized": False, "special": True}],
             "normalizer": {"type": "NFC"},
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
             "post_processor": None, "decoder": {"type": "ByteLevel"},
             "model": {"type": "BPE", "vocab": {"H": 0, "e": 1, "l": 2, "He": 3}, "merges": ["H e"]}}
    return json.dumps(whole | changes)


put("tokenizer", "bpe", tokenizer())
put("tokenizer", "split", tokenizer(pre_tokenizer={"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s(?!\\S)"}, "behavior": "Isolated", "invert": False},
    {"type": "Digits", "individual_digits": True}]}))
put("tokenizer", "metaspace", tokenizer(
    pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
    decoder={"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                                              {"type": "ByteFallback"}, {"type": "Fuse"}]},
    model={"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "vocab": {"<unk>": 0, "<0x48>": 1}, "merges": []}))
put("tokenizer", "wordpiece", tokenizer(
    normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                "lowercase": True},
    pre_tokenizer={"type": "BertPreTokenizer"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    model={"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
           "vocab": {"[UNK]": 0, "hello": 1, "##o": 2}}))
put("tokenizer", "wild_regex", tokenizer(pre_tokenizer={
    "type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Removed", "invert": False}))
put("tokenizer", "huge_id", tokenizer(model={"type": "BPE", "vocab": {"H": 2**31}, "merges": []}))
put("tokenizer", "bad_merge", tokenizer(model={"type": "BPE", "vocab": {"H": 0}, "merges": ["H q"]}))

put("config", "quickstart", (SOURCE / "configs/quickstart.json").read_text())
put("config", "matrix", json.dumps({
    "name": "x", "models": ["smollm2-135m"], "workloads": [{"name": "w", "limit": 2}],
    "methods": ["full", {"name": "m", "matrix": {"a": [1, 2], "b": [1, 2, 3]}, "label": "m {a} {b}"}]}))
put("config", "wrong_types", json.dumps({"name": 1, "models": {}, "workloads": "w", "methods": [[]], "engine": [],
                                         "timing": {"repeats": "5"}, "table": {"rows": 3}, "published": [{}]}))
put("config", "large_matrix", json.dumps({
    "name": "x", "models": ["smollm2-135m"], "workloads": ["w"],
    "methods": [{"name": "m", "matrix": {letter: list(range(40)) for letter in "abcdef"}}]}))
put("config", "deep", "[" * 2000)
put("config", "twice", '{"name": "a", "name": "b"}')

put("config", "llama", json.dumps({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128, "rope_theta": 1e4, "bos_token_id": 1, "eos_token_id": [2, 3],
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 64}}))
put("config", "deepseek", json.dumps({
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 128, "kv_lora_rank": 32, "q_lora_rank": None, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32,
    "first_k_dense_replace": 1, "topk_method": "greedy", "scoring_func": "softmax", "rope_scaling": {
        "type": "yarn", "factor": 4, "beta_fast": 32, "beta_slow": 1, "mscale": 0.7, "mscale_all_dim": 0.7,
        "original_max_position_embeddings": 32}}))
put("config", "qwen3_moe", json.dumps({
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
    "rms_norm_eps": 1e-6, "max_position_embeddings": 128, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 1}))
put("config", "huge_numbers", json.dumps({
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1e300, "num_hidden_layers": 2**62,
    "num_attention_heads": 0, "vocab_size": -1, "eos_token_id": 2**40, "rope_scaling": []}))
put("config", "serving", json.dumps({
    "name": "x", "models": ["smollm2-135m"], "workloads": ["w"], "methods": ["full"], "engine": {"seed": 3},
    "timing": {}, "serving": {"rates": [1, 2]}, "contexts": {"forms": ["f"], "memory_share": 0.5}, "metrics": ["m"]}))


def shortened(value):
    """The same form with short texts and lists."""
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in list(value.items())[:12]}
    if isinstance(value, list):
        return [shortened(item) for item in value[:3]]
    return value[:60] if isinstance(value, str) else value


def rows_of(file):
    text = (SAMPLES / file).read_text()
    rows = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines() if line]
    return [shortened(row) for row in rows[:2]]


row = {"input": "question", "answers": ["a", "b"], "length": 3}
put("records", "lines", "rows\n" + "\n".join(json.dumps(row) for _ in range(3)))
put("records", "array", "rows\n" + json.dumps([row, row], indent=1))
put("records", "mark_and_crlf", "rows\n\ufeff" + json.dumps(row) + "\r\n\r\n" + json.dumps(row))
put("records", "bad_utf8", b'rows\n{"input": "\xff\xfe"}\n')
put("records", "open_array", "rows\n[" + json.dumps(row))
put("records", "strange_fields", "rows\n" + json.dumps({"input": 3, "answers": {"a": 1}, "length": 2**64 - 1}))
put("records", "no_double", 'rows\n{"input": 1e999}')
put("records", "deep", 'rows\n{"input": ' + "[" * 3000)
put("records", "questions", "questions\n" + json.dumps({"context_id": "a", "question": "b?", "split": "train"}))
put("records", "azure", "arrivals\nTIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n")
put("records", "burstgpt", "arrivals\nTimestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                           "5,ChatGPT,472,18,490,Conversation log\n")
put("records", "mooncake", "arrivals\n" + json.dumps(
    {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}))
for name, file in [("longbench/qasper", "longbench/qasper.jsonl"), ("longbench/lcc", "longbench/lcc.jsonl"),
                   ("longbench/trec", "longbench/trec.jsonl"), ("longbench-v2", "longbench-v2/data.json"),
                   ("infinitebench/passkey", "infinitebench/passkey.jsonl"),
                   ("infinitebench/code_run", "infinitebench/code_run.jsonl"),
                   ("babilong/qa1", "babilong/qa1_4k.jsonl"), ("mrcr/2needle", "mrcr/2needle.jsonl"),
                   ("graphwalks/128k", "graphwalks/graphwalks_128k_and_shorter.jsonl"),
                   ("ifeval", "ifeval/input_data.jsonl"), ("math_500", "math_500/test.jsonl"), ("aime/24", "aime/aime24.jsonl"),
                   ("bfcl/parallel", "bfcl/BFCL_v4_parallel.json"), ("gsm8k", "gsm8k/test.jsonl"),
                   ("gsm8k-long", "gsm8k/test.jsonl"), ("complexfuncbench", "complexfuncbench/ComplexFuncBench.jsonl"),
                   ("agentic-traces", "lmcache-agentic-traces/traces.jsonl"),
                   ("mooncake-trace", "mooncake/conversation_trace.jsonl"), ("weka-trace", "weka/traces.jsonl"),
                   ("longgenbench/short", "longgenbench/Dataset_short.json"),
                   ("longbench-write", "longwriter/longbench_write.jsonl"),
                   ("pisanitizer/qasper", "pisanitizer/LongBench_incorrect_answer/qasper.json"),
                   ("swe-bench-lite", "swe-bench-lite/test.jsonl"), ("zero_scrolls/qasper", "zero_scrolls/qasper/validation.jsonl"),
                   ("helmet/icl_trec_fine", "helmet/icl/trec_test.jsonl"),
                   ("helmet/kilt_nq", "helmet/data/kilt/nq-train-multikilt_1000_k3_dep6.jsonl"),
                   ("helmet/msmarco_rerank", "helmet/data/msmarco/test_reranking_data_k10_dep3.jsonl"),
                   ("helmet/alce_asqa", "helmet/prompts/asqa_revised.json")]:
    lines = "\n".join(json.dumps(each, ensure_ascii=False) for each in rows_of(file))
    put("records", "workload_" + name.replace("/", "_"), f"{name}\n{lines}\n")
put("records", "workload_pg19", "pg19\n" + (SAMPLES / "pg19/test/0.txt").read_text()[:600])

put("answer", "patch", "Here:\r\n```diff\r\ndiff --git a/x b/x\r\n--- a/x\r\n+++ b/x\r\n@@ -1,2 +1,2 @@\r\n-a\r\n+b\r\n c\r\n```\r\n")
put("answer", "minimal_patch", "<patch>\n--- a/x\n+++ b/x\n@@ -9223372036854775807,1 +1,99999999999999999999 @@\n-a\n</patch>")
put("answer", "quoted_names", 'diff --git "a/x\\303\\251" "b/x\\303\\251"\nrename from "a\nrename to /\n')
put("answer", "calls", "[f.g(a=1, b=['x'], c={'k': 1}, d=2.5, e=(1, 2)), f.g(a=1<<70, b=-7>>99, d='\\U0001F600')]")
put("answer", "call", "f.g(a=1, b=['x'], c={'k': 1}, d=2, e=(1, 2))")
put("answer", "call_cut", "[f.g(a='\\x4")
put("answer", "json_call", '{"name": "f", "arguments": {"a": 1, "b": ["x", {"c": null}]}}')
put("answer", "weeks", "#*# Week 1: a #*# Week 99999999999999999999 b #*# Week \u0663 #*#")
put("answer", "chained", "Answer_9:\nQuestion: x\r\nA_gold: 7\n\nAnswer_10:\n1,200.5.")
put("answer", "judge", 'It is good. Rating: [[10]] {"Relevance": 5, "Accuracy": "4", "Coherence": 1e999, "Clarity": null}')
put("answer", "judge_deep", '{"Relevance": ' + "[" * 20000)
put("answer", "questions", "1. Who?\n2) Why?\n- When?\n?\n99999999999999999999.?\nNo question.")
put("answer", "choice", 'The correct answer is (B). Option is: "A"\0["A", "B"]')
put("answer", "numbers", '-1_000 9007199254740993 12.5\0[9007199254740993, 12.5, true, null]')
put("answer", "label_deep", "A\0" + "[" * 400 + "]" * 400)
put("answer", "label_too_deep", "A\0" + "[" * 20000)
put("score_file", "own", json.dumps({"id": "a", "prediction": "x y", "references": ["x", 3]}) + "\r\n\r\n" +
    json.dumps({"id": "b", "pred": "x", "answers": "x", "all_classes": ["x", "y"], "length": 3}))
put("score_file", "infinitebench", '{"id": 0, "prediction": "5", "ground_truth": [5], "task": "math_find", "loss": NaN}')
put("score_file", "harness", json.dumps({"doc_id": 0, "target": "x", "filtered_resps": [["x"]], "dataset": "trec_e"}))
put("score_file", "of_other_types", json.dumps({"prediction": 3, "target": None, "answers": {"a": []}, "task": 3, "dataset": 7,
                                                "type": [], "number": "x", "questions": [3], "all_classes": [1], "score": 1,
                                                "golden_calls": "x", "prefix": 1, "required_length": 2**64, "needle": 5}))
put("score_file", "python_numbers", '{"prediction": "\\"NaN", "answers": [null, -Infinity, NaN, "Infinity"], "x": [nullNaN]}')
put("score_file", "bad_utf8", b'{"prediction": "\xff", "answers": []}')
put("score_file", "deep", '{"prediction": "x", "answers": ' + "[" * 20000)
put("score_file", "no_object", "[1]\n3\n")

put("function_call", "json", '{"name": "get_weather", "arguments": {"city": "Paris", "days": 3, "units": null}}')
put("function_call", "fenced", '```json\n[{"name": "a", "parameters": {"x": [1, 2.5, true]}}]\n```')
put("function_call", "python", '[get_weather(city="Paris", days=3), f.g(x=[1, -2.5e3], y={"a": (1,)}, z=None)]')
put("function_call", "string_arguments", '<|python_tag|>{"name": "a", "arguments": "{\\"x\\": 1}"}')
put("function_call", "cut", '[{"name": "a", "arguments": {"x": ')
put("function_call", "deep", "[" * 3000)
put("function_call", "deep_python", "[f(x=" + "(" * 2000)
put("function_call", "numbers", "[f(a=0x_f, b=1__0, c=1e999, d=10**9, e=1j, g=99999999999999999999)]")

# The first byte: 0 the range coder, 1 a chunk of a coder, 2 frames.
put("codec_stream", "range_few_words", bytes([0, 3, 4]) + bytes(range(16)) + b"\0\0\1\0" * 16)
put("codec_stream", "range_no_words", bytes([0, 255, 255]) + bytes(16) + b"\xff\xff\xff\xff" * 16)
put("codec_stream", "range_one_symbol", bytes([0, 0, 9]) + bytes([1] * 16) + b"\0\0\1\0" * 16)
put("codec_stream", "range_words", bytes([0, 16, 40]) + bytes([9] * 16) + b"\0\0\1\0" * 16 + bytes(range(200)))
one_symbol = b"\7\7" * 16 + struct.pack("<I", 64) + b"\0\0\1\0" * 16
side = b"\0\x3c" * 3 + one_symbol
put("codec_stream", "chunk", bytes([1, 1, 0, 2, 0]) + side * 2)
put("codec_stream", "chunk_anchor", bytes([1, 2, 0, 2, 0]) + (b"\0\x3c" + bytes(range(16)) + b"\0\x3c" * 2 + one_symbol) * 2)
put("codec_stream", "chunk_infinite", bytes([1, 0, 0, 0, 0]) + b"\0\x7c")
put("codec_stream", "chunk_bad_range", bytes([1, 1, 0, 2, 0]) + b"\0\x3c" * 3 + b"\x09\x01")


def checksum(data):
    hash_ = 0xCBF29CE484222325
    for byte in data:
        hash_ = (hash_ ^ byte) * 0x100000001B3 % 2**64
    return hash_


def frame(layers, tokens, channels, payload):
    sizes = struct.pack("<IIIQ", layers, tokens, channels, len(payload))
    return b"KVS1" + sizes + struct.pack("<Q", checksum(sizes + payload)) + payload


put("codec_stream", "frames", b"\2" + frame(1, 3, 16, side * 2) * 2)
put("codec_stream", "frame_huge", b"\2" + frame(2**31, 2**31, 2**31 - 15, b""))
put("codec_stream", "frame_large", b"\2" + frame(64, 256, 4096, b"\0"))
put("codec_stream", "frame_cut", b"\2" + frame(1, 3, 16, side * 2)[:-1])


def index(objects, **changes):
    """An index as it is (first byte "1")."""
    canonical = json.dumps(objects, separators=(",", ":"), sort_keys=True)
    whole = {"sha256": hashlib.sha256(canonical.encode()).hexdigest(), "objects": objects} | changes
    return "1" + json.dumps(whole)


whole = {"key": {"bytes": 3, "sha256": hashlib.sha256(bytes(3)).hexdigest()}}
put("context_folder", "whole", index(whole))
put("context_folder", "climbing", index({"../../key": whole["key"], "/etc/passwd": whole["key"]}))
put("context_folder", "negative", index({"key": {"bytes": -1, "sha256": "00"}}))
put("context_folder", "wrong_types", index({"key": 3, "other": {"bytes": "3", "sha256": []}}))
put("context_folder", "wrong_sum", index(whole, sha256="00"))
put("context_folder", "empty", "1")
put("context_folder", "no_object", '1{"sha256": 3, "objects": null}')
put("context_folder", "deep", '1{"sha256": "", "objects": ' + "[" * 1500 + "]" * 1500 + "}")
# Objects alone, for which the target makes the checksum (first byte "0").
put("context_folder", "objects", "0" + json.dumps(whole))
put("context_folder", "objects_not_text", "0" + json.dumps({"key": {"bytes": 3.5, "sha256": 7}, "b": None}))
put("context_folder", "objects_list", "0" + json.dumps([whole["key"], 3]))
put("context_folder", "objects_huge", "0" + json.dumps({"key": {"bytes": 1e300, "sha256": ""}}))


def framed(data):
    return struct.pack("<Q", len(data)) + data


def cbor(value):
    """RFC 8949, what a verdict needs of it."""
    def head(major, n):
        return bytes([major << 5 | n]) if n < 24 else bytes([major << 5 | 25]) + struct.pack(">H", n)
    if value is None:
        return b"\xf6"
    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(cbor(item) for item in value)
    return head(5, len(value)) + b"".join(cbor(key) + cbor(item) for key, item in value.items())


labels = {"unit": "s", "clock": "measured", "storage": "real"}
verdict = {"prompt_sha256": "ab", "context": "", "prompt_tokens": 3, "truncated_tokens": 0, "output_tokens": 2, "prediction": "x",
           "references": "[]", "finish_reason": "length", "active": True, "activity": "{}", "wall_s": 0.5,
           "values": [{"metric": "m", "value": 1.0} | labels], "series": [{"name": "s", "values": [1.0, 2.0]} | labels],
           "events": [{"event": "e", "at_ms": None, "data": "{}"}], "peak_bytes": {"device": 7}}
put("message", "verdict", framed(cbor({"ok": [verdict, {"failure": "it threw"}]})))
put("message", "verdict_of_floats", framed(cbor({"ok": [verdict | {"prompt_tokens": 1e300, "peak_bytes": {"device": -1e30}}]})))
cell = {"cell_id": "c", "experiment": "e", "model_json": "{}", "workload_json": "{}", "method": "h2o", "settings_json": "{}",
        "engine_json": "{}", "protocol_json": "{}", "protocol_sha256": "ab", "position": 1, "planned_samples": 3}
task = {"model": "m", "workload": "w", "kind": "quality", "sample_id": "s", "sample_index": 2,
        "cells": [cell | {"method": "full"}, cell]}
put("message", "task", framed(cbor({"ask": "evaluate", "task": task})))
put("message", "task_of_floats", framed(cbor({"task": task | {"sample_index": 1e300, "cells": [cell | {"position": -1e30}]}})))
put("message", "error", framed(cbor({"error": "what it says"})))
put("message", "map", framed(b"\xa1\x62ok\x83\x01\xfb\x3f\xf0\0\0\0\0\0\0\xf6"))
put("message", "two", framed(b"\xf6") + framed(b"\x80"))
put("message", "huge_array", framed(b"\x9b" + b"\xff" * 8))
put("message", "endless", framed(b"\x9f" * 100))
put("message", "deep", framed(b"\x81" * 3000))
put("message", "long_length", b"\xff" * 16)

put("results_rows", "none", "")
put("results_rows", "words", """cells state 0 t dome
cells kind 1 t quality
sample_values clock 2 t sundial
metrics better 0 t sideways""")
put("results_rows", "json", """cells protocol_json 0 t [1, 2]
cells settings_json 1 t {"keep": {"a": [1]}}
experiments table_json 0 t {"rows": 3}
experiments config_json 0 t null
samples references_json 0 t {}
events data_json 0 t "x"
samples activity_json 1 t 7""")
put("results_rows", "numbers", """sample_values value 0 f nan
sample_values value 1 f inf
sample_values value 2 f 1e308
sample_values value 3 f -1e308
samples sample_index 0 i -9223372036854775808
samples sample_index 1 i 9223372036854775807
samples output_tokens 2 i -1
cells planned_samples 0 i -5
cells position 1 i 9223372036854775807
cell_peaks peak_bytes 0 i -9223372036854775808
metrics table_scale 0 f inf
published value 0 f nan""")
put("results_rows", "series", """series values_json 0 t [1,x]
series values_json 1 t []
series length 2 i -3
series values_json 3 t [9e999,null,-9e999]""")
put("results_rows", "names", """cells method 0 t
cells method 1 t =HYPERLINK("x")
cells workload 0 t <script>alert(1)</script>
cells model 0 t RAW
sample_values metric 0 t qa_f1
sample_values unit 1 t percent
samples sample_id 0 t 99
sample_values sample_id 5 t none
runs started_at 0 t yesterday
published method 0 t nobody""".encode().replace(b"RAW", b"\xff\xfe"))
