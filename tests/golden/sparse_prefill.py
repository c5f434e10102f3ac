"""Entries that patterns of sparse prefill attend to, by their authors' code, for tests/methods/prefill/*_test.cpp.

    pip install torch triton einops transformers
    git clone https://github.com/microsoft/MInference && git clone https://github.com/mit-han-lab/x-attention
    git clone https://github.com/ByteDance-Seed/FlexPrefill && git clone https://github.com/NVIDIA/Model-Optimizer
    TRITON_INTERPRET=1 python tests/golden/sparse_prefill.py FOLDER_OF_CLONES [METHOD...]

Writes sparse_prefill/NAME.json. Queries, keys and values are drawn by harness/core/random.h's rule, so the test holds the
same: 4 query heads over 2 kv heads of 16 channels, float32, queries times `sharpness`, and where `alike` says so of so many tokens the first one's. A case names settings.

Run as they are, on the CPU: FlexPrefill's get_active_blocks, its Triton kernel in Triton's interpreter; XAttention's
xattn_estimate with find_blocks_chunked, without its CUDA kernels; Model-Optimizer's FlashSkipSoftmax; MInference's vertical_and_slash_kernel and
tri_shape_kernel, with the device taken out, its streaming_forward in Triton's interpreter, and the kernel of
csrc/vertical_slash_index.cu, compiled by g++ with a loop in place of the grid. minference holds blocks of 64 keys and
columns for each head and block of queries; the others the blocks of keys, in bits from the left, one
hexadecimal number a row; a_shape and tri_shape the layer's output. Written for torch 2.11, triton 3.6, einops 0.8,
transformers 5.2; MInference fb56c91, x-attention e379887, FlexPrefill a24b27b,
Model-Optimizer a2fbac7.
"""

import ast
import ctypes
import math
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import types

import numpy as np
import torch
import triton
from authors_code import module_of
from by_method import write
from random_stream import uniform

Q_HEADS, KV_HEADS, DIM = 4, 2, 16


def floats(count, purpose, seed):
    """tests/support/random_entries.h."""
    return torch.tensor((2 * uniform(seed, purpose, count) - 1).astype(np.float32))


def layer(n, seed, sharpness):
    """Queries [1, q_heads, n, dim], and keys and values repeated to that."""
    q = floats(n * Q_HEADS * DIM, "q", seed).view(n, Q_HEADS, DIM) * sharpness
    both = [floats(n * KV_HEADS * DIM, name, seed).view(n, KV_HEADS, DIM) for name in ("keys", "values")]
    k, v = (rows.repeat_interleave(Q_HEADS // KV_HEADS, dim=1) for rows in both)
    return [rows.transpose(0, 1).unsqueeze(0).contiguous() for rows in (q, k, v)]


def case_of(name, n, seed, sharpness, **settings):
    return {"method": {"name": name, **settings}, "n": n, "seed": seed, "sharpness": sharpness}


def functions_of(path, names, scope):
    """Functions of a file, nested ones too, defined in `scope` without the rest of the file."""
    source = pathlib.Path(path).read_text().replace(', device="cuda"', "")
    found = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
    for name in names:
        exec(textwrap.dedent(ast.get_source_segment(source, found[name], padded=True)), scope)


def compiled_index(folder):
    """convert_vertical_slash_indexes_kernel for the CPU."""
    source = (folder / "MInference/csrc/vertical_slash_index.cu").read_text()
    kernel = source[source.index("__device__ void save_blocks") : source.index("void convert_vertical_slash_indexes_64x64")]
    shim = """
        #include <algorithm>
        using std::max;
        #define __device__ static
        #define __global__ static
        static struct { int x, y, z; } blockIdx, threadIdx, blockDim{1, 1, 1};
    """
    call = """
        extern "C" void index_of(int n, int rows, const int* v, int nv, const int* s, int ns, int* counts, int* blocks,
                                 int* column_counts, int* columns) {
          for (blockIdx.z = 0; blockIdx.z < rows; ++blockIdx.z)
            convert_vertical_slash_indexes_kernel(&n, v, s, counts, blocks, column_counts, columns, 1, rows, 64, 64, nv, ns);
        }
    """
    build = pathlib.Path(tempfile.mkdtemp())
    (build / "index.cpp").write_text(shim + kernel + call)
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "index.cpp", "-o", "index.so"], cwd=build, check=True)
    return ctypes.CDLL(str(build / "index.so")).index_of


def minference(folder):
    index_of = compiled_index(folder)

    def blocks_and_columns(n, vertical, slash):
        v = vertical.flatten().sort().values.int().numpy()
        s = slash.flatten().sort(descending=True).values.int().numpy()
        rows = (n + 63) // 64
        counts, column_counts = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        blocks, columns = np.zeros((rows, len(s)), np.int32), np.zeros((rows, len(v)), np.int32)
        at = lambda array: array.ctypes.data_as(ctypes.c_void_p)
        index_of(n, rows, at(v), len(v), at(s), len(s), at(counts), at(blocks), at(column_counts), at(columns))
        return [[blocks[r, : counts[r]].tolist(), columns[r, : column_counts[r]].tolist()] for r in range(rows)]

    cases = []
    for n, seed, sharpness, vertical, slash in [(700, 1, 8, 40, 110), (833, 2, 4, 64, 130), (640, 3, 12, 30, 200)]:
        q, k, v = layer(n, seed, sharpness)
        case = case_of("minference", n, seed, sharpness, vertical=vertical, slash=slash)
        case["heads"] = []
        for head in range(Q_HEADS):
            arange = torch.arange(64)
            scope = {"torch": torch, "math": math, "q_len": n, "self": types.SimpleNamespace(head_dim=DIM)}
            scope["LAST_Q_MASK"] = arange[None, None, :, None] >= arange[None, None, None, :]
            scope["vertical_slash_sparse_attention"] = lambda q, k, v, columns, diagonals: (columns, diagonals)
            path = folder / "MInference/minference/modules/minference_forward.py"
            functions_of(path, ["sum_all_diagonal_matrix", "vertical_and_slash_kernel"], scope)
            own = [rows[:, head : head + 1] for rows in (q, k, v)]
            case["heads"].append(blocks_and_columns(n, *scope["vertical_and_slash_kernel"](*own, vertical, slash)))
        cases.append(case)
    return cases


def shapes(folder, name):
    path = folder / "MInference/minference"
    triton.autotune = lambda **_: lambda kernel: kernel
    on_device = ("with torch.cuda.device(q.device):", "if True:")
    streaming = module_of(path / "ops/streaming_kernel.py", edits=[on_device]).streaming_forward
    cases = []
    for n, seed, sinks, local, last in [(200, 1, 16, 64, 40), (333, 2, 5, 128, 100)]:
        q, k, v = layer(n, seed, 2)
        case = case_of(name, n, seed, 2, sinks=sinks, local=local)
        if name == "tri_shape":
            case["method"]["last"] = last
            scope = {"torch": torch, "math": math, "streaming_forward": streaming}
            scope["self"] = types.SimpleNamespace(head_dim=DIM)
            functions_of(path / "modules/minference_forward.py", ["tri_shape_kernel"], scope)
            out = scope["tri_shape_kernel"](q, k, v, sinks, local, last)
        else:
            out = streaming(q, k, v, sinks, local)
        rows = out[0].transpose(0, 1)[::37]  # every 37th row is enough
        case["rows"] = [[round(float(x), 5) for x in row.flatten()] for row in rows]
        cases.append(case)
    return cases


def hexadecimal(row):
    return f"{int(''.join('1' if bit else '0' for bit in row), 2):x}"


def flexprefill(folder):
    module = module_of(folder / "FlexPrefill/flex_prefill/ops/flex_prefill_attention.py")
    cases = []
    for n, seed, sharpness, gamma, tau, least, block in [
        (1000, 1, 6, 0.9, 0.1, 64, 32),
        (1000, 2, 3, 0.6, 0.3, 128, 64),
        (1024, 3, 10, 0.95, 0.0, 32, 32),
        (700, 4, 2, 0.5, 0.9, 16, 16),
        (1300, 5, 8, 0.9, 0.2, 128, 128),
    ]:
        q, k, v = layer(n, seed, sharpness)
        keys = k[:, :: Q_HEADS // KV_HEADS]
        module.causal_mask = None
        found = module.get_active_blocks(
            *(rows.transpose(1, 2) for rows in (q, keys, keys)), block, gamma, math.ceil(least / block), 2**31 - 1, tau
        )
        blocks = math.ceil(n / block)
        case = case_of("flexprefill", n, seed, sharpness, gamma=gamma, tau=tau, min_budget=least, block=block)
        case["heads"] = []
        for head in range(Q_HEADS):
            mask = np.zeros(blocks * blocks, bool)
            mask[found[0][head].numpy()] = True
            case["heads"].append([hexadecimal(row) for row in np.tril(mask.reshape(blocks, blocks))])
        cases.append(case)
    return cases


def xattention(folder):
    source = folder / "x-attention/xattn/src"
    utils = module_of(source / "utils.py", edits=[('device = "cuda"', 'device = "cpu"')])
    scope_edits = [('.to("cuda")', ""), ('.to(\n            "cuda"\n        )', ""), ("from xattn.src.utils import *", "")]
    stubs = ["xattn", "xattn.src", "xattn.src.kernels", "block_sparse_attn"]
    module = module_of(source / "Xattention.py", stubs=stubs, edits=scope_edits)
    module.__dict__["find_blocks_chunked"] = utils.find_blocks_chunked
    cases = []
    for n, seed, sharpness, threshold, stride, chunk in [
        (1600, 1, 80, 0.8, 16, 2048),
        (1501, 2, 60, 0.6, 8, 2048),
        (2000, 3, 20, 0.4, 4, 2048),
        (1800, 4, 60, 0.5, 8, 512),
    ]:
        q, k, v = layer(n, seed, sharpness)
        sums, mask = module.xattn_estimate(q, k, 128, stride, threshold=threshold, chunk_size=chunk, use_triton=False)
        blocks = math.ceil(n / 128)
        case = case_of("xattention", n, seed, sharpness, threshold=threshold, stride=stride, chunk=chunk)
        case["heads"] = [[hexadecimal(row) for row in head[:blocks, :blocks].numpy()] for head in mask[0]]
        cases.append(case)
    return cases


def skip_softmax(folder):
    path = folder / "Model-Optimizer/modelopt/torch/sparsity/attention_sparsity/methods/flash_skip_softmax.py"
    base = "class SparseAttentionMethod: calibration_params = target_sparse_ratio = None\n"
    base += "register_sparse_method = lambda name: lambda method: method"
    stubs = ["modelopt", "modelopt.torch", "modelopt.torch.quantization", "modelopt.torch.quantization.utils"]
    module = module_of(path, stubs, [("from . import SparseAttentionMethod, register_sparse_method", base)])
    cases = []
    for n, seed, sharpness, scale in [(1536, 1, 12, 400), (1408, 2, 16, 100), (1152, 3, 10, 900)]:
        q, k, _ = layer(n, seed, sharpness)
        q = q[:, :, ::128].repeat_interleave(128, dim=2)
        scores = q @ k.transpose(2, 3) / math.sqrt(DIM)
        scores = scores.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), torch.finfo(torch.float32).min)
        config = {"thresholds": {"prefill": [scale / n]}, "br": 128, "bc": 128, "backend": "pytorch", "is_causal": True}
        mask = module.FlashSkipSoftmax(config).calculate_sparsity(scores)[0][0, :, ::128, ::128]
        case = case_of("skip_softmax", n, seed, sharpness, scale=scale) | {"alike": 128}
        case["heads"] = [[hexadecimal(row) for row in head.tril().numpy()] for head in mask]
        cases.append(case)
    return cases


MAKERS = {
    "a_shape": lambda folder: shapes(folder, "a_shape"),
    "tri_shape": lambda folder: shapes(folder, "tri_shape"),
    "minference": minference,
    "flexprefill": flexprefill,
    "xattention": xattention,
    "skip_softmax": skip_softmax,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[2:] or MAKERS:
        write(__file__, name, {"cases": MAKERS[name](pathlib.Path(sys.argv[1]))})
