#include "kernels/column_sums/column_sums_cuda.h"

#include "tests/kernels/cuda/device_support.h"

namespace kvarena::kernels {
namespace {

using test::CudaTest;
using test::expect_close;
using test::expect_same_bits;
using test::Layer;
using test::normal;
using test::OnDevice;
using test::Shape;
using test::StateMemory;

class ColumnSumsCuda : public CudaTest {};

std::vector<float> lse_of(const Shape& shape, const std::vector<float>& q, int64_t q_len,
                          const std::vector<HeadRun>& runs, int64_t window) {
  const ScopedCpuPath reference(CpuPath::reference);
  StateMemory memory(shape, q_len);
  AttendProblem problem = test::problem(shape, q.data(), q_len, runs, true, memory);
  problem.window = window;
  test::attend_one(shape, problem);
  memory.finish();
  return memory.lse;
}

ColumnSumsArgs args_of(const Shape& shape, const ColumnSumsProblem& problem) {
  return {
      {&problem, 1}, shape.q_heads, shape.kv_heads, shape.head_dim, 1 / std::sqrt(static_cast<float>(shape.head_dim))};
}

struct Call {
  std::vector<float> q, lse;
  int64_t q_len = 0, window = 0;
};

/// The sums after the call.
std::vector<float> on_host(const Shape& shape, const Call& call, const std::vector<HeadRun>& runs,
                           std::vector<float> sums) {
  const ScopedCpuPath reference(CpuPath::reference);
  const ColumnSumsProblem problem{call.q.data(),
                                  call.q_len,
                                  shape.q_heads * shape.head_dim,
                                  shape.head_dim,
                                  call.lse.data(),
                                  runs.data(),
                                  shape.dtype,
                                  true,
                                  call.window,
                                  sums.data(),
                                  static_cast<int64_t>(sums.size()) / shape.q_heads};
  column_sums(args_of(shape, problem));
  return sums;
}

std::vector<float> on_device(const Shape& shape, const Call& call, const std::vector<HeadRun>& host_runs,
                             const std::vector<float>& sums) {
  OnDevice device;
  const std::vector<HeadRun> runs = device.copy(shape, host_runs);
  float* device_sums = device.copy(sums);
  const ColumnSumsProblem problem{device.copy(call.q),
                                  call.q_len,
                                  shape.q_heads * shape.head_dim,
                                  shape.head_dim,
                                  device.copy(call.lse),
                                  runs.data(),
                                  shape.dtype,
                                  true,
                                  call.window,
                                  device_sums,
                                  static_cast<int64_t>(sums.size()) / shape.q_heads};
  CudaScratch scratch;
  column_sums_cuda(args_of(shape, problem), scratch, nullptr);
  return test::from_device(device_sums, static_cast<int64_t>(sums.size()));
}

TEST_F(ColumnSumsCuda, AgreesWithTheReference) {
  for (const int64_t n : {1, 17, 300}) {
    for (const DType dtype : test::kDTypes) {
      for (const int64_t window : {0, 50}) {
        const Shape shape{6, 2, 64, 64, dtype};
        const Layer layer(shape, n, 3);
        for (const int64_t q_len : {int64_t{1}, std::min<int64_t>(n, 20)}) {
          Call call{normal(q_len * 384, 4), {}, q_len, window};
          call.lse = lse_of(shape, call.q, q_len, layer.runs(), window);
          const std::vector<float> sums = normal(6 * n, 5);  // what earlier calls left
          expect_close(on_device(shape, call, layer.runs(), sums), on_host(shape, call, layer.runs(), sums), 1e-5, 2e-5,
                       std::string(name_of(dtype)) + " n=" + std::to_string(n) + " q_len=" + std::to_string(q_len));
        }
      }
    }
  }
}

TEST_F(ColumnSumsCuda, ReadsPackedKeysAndWhatAnIndexLists) {
  const Shape shape{4, 2, 80, 80, DType::bf16};
  const test::PackedLayer layer(shape, {.bits = 4, .group_size = 16}, 300, 256, 172, 7);
  Call call{normal(20 * 4 * 80, 4), {}, 20};
  call.lse = lse_of(layer.decoded_shape(), call.q, 20, layer.decoded_runs(), 0);
  std::vector<int32_t> index;
  for (int32_t e = 0; e < 300; ++e) {
    if (e * 7919 % 5 < 2 || e / 16 == 3) index.push_back(e);
  }
  for (const bool listed : {false, true}) {
    std::vector<HeadRun> packed = layer.packed_runs(), decoded = layer.decoded_runs();
    if (listed) {
      for (HeadRun* run : {&packed[0], &packed[1], &decoded[0], &decoded[1]}) {
        run->index = index.data();
        run->index_count = static_cast<int64_t>(index.size());
      }
    }
    const std::vector<float> sums(4 * (listed ? index.size() : 300));
    expect_close(on_device(shape, call, packed, sums), on_host(layer.decoded_shape(), call, decoded, sums), 3e-5, 3e-5,
                 listed ? "listed" : "all");
  }
}

TEST_F(ColumnSumsCuda, APromptInPiecesHasTheBitsOfOneCall) {
  const Shape shape{4, 2, 64, 64, DType::bf16};
  const int64_t n = 40, token = 4 * 64;
  const Layer layer(shape, n, 9);
  Call whole{normal(n * token, 4), {}, n};
  whole.lse = lse_of(shape, whole.q, n, layer.runs(), 0);
  const std::vector<float> together = on_device(shape, whole, layer.runs(), std::vector<float>(4 * n));
  std::vector<float> sums(4 * n);
  for (int64_t begin = 0; begin < n; begin += 11) {
    const int64_t end = std::min<int64_t>(n, begin + 11);
    const Call piece{{whole.q.begin() + begin * token, whole.q.begin() + end * token},
                     {whole.lse.begin() + begin * 4, whole.lse.begin() + end * 4},
                     end - begin};
    // The piece sees the run's entries before its end: the sums of those entries alone.
    std::vector<float> part;
    for (int64_t h = 0; h < 4; ++h) part.insert(part.end(), sums.begin() + h * n, sums.begin() + h * n + end);
    part = on_device(shape, piece, layer.runs(end), part);
    for (int64_t h = 0; h < 4; ++h) std::copy_n(part.begin() + h * end, end, sums.begin() + h * n);
  }
  expect_same_bits(sums, together, "pieces");
}

}  // namespace
}  // namespace kvarena::kernels
