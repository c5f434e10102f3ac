#include "kernels/attention/attention_cuda.h"

#include "kernels/quantize/fp4.h"
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

class AttentionCuda : public CudaTest {};

struct Result {
  std::vector<float> out, lse;
};

/// Visibility of a query: causal, list of seen entries, window.
struct Sight {
  bool causal = true;
  int64_t window = 0;
  std::vector<int32_t> seen = {};
};

float scale_of(const Shape& shape) { return 1 / std::sqrt(static_cast<float>(shape.head_dim)); }

Result on_host(const Shape& shape, const std::vector<float>& q, int64_t q_len, const std::vector<HeadRun>& runs,
               const Sight& sight) {
  const ScopedCpuPath reference(CpuPath::reference);
  StateMemory memory(shape, q_len);
  AttendProblem p = test::problem(shape, q.data(), q_len, runs, sight.causal, memory);
  p.window = sight.window;
  p.seen = sight.seen.empty() ? nullptr : sight.seen.data();
  test::attend_one(shape, p);
  memory.finish();
  return {memory.out, memory.lse};
}

/// One sequence's memory on the device.
struct DeviceProblem {
  OnDevice device;
  std::vector<HeadRun> runs;
  AttendProblem problem;
  float* lse;
  Shape shape;
  DeviceProblem(const Shape& s, const std::vector<float>& q, int64_t q_len, const std::vector<HeadRun>& host,
                const Sight& sight)
      : runs(device.copy(s, host)), shape(s) {
    const int64_t rows = q_len * s.q_heads;
    problem = {
        .q = device.copy(q),
        .q_len = q_len,
        .q_token_stride = s.q_heads * s.head_dim,
        .q_head_stride = s.head_dim,
        .runs = runs.data(),
        .dtype = s.dtype,
        .causal = sight.causal,
        .seen = sight.seen.empty() ? nullptr : device.copy(sight.seen),
        .window = sight.window,
        .state = {device.memory<float>(rows * s.value_dim), device.memory<float>(rows), device.memory<float>(rows)}};
    lse = device.memory<float>(rows);
    init_attention_cuda(problem.state, q_len, s.q_heads, s.value_dim, nullptr);
  }
  Result finish() {
    const int64_t rows = problem.q_len * shape.q_heads;
    finish_attention_cuda(problem.state, problem.q_len, shape.q_heads, shape.value_dim, lse, nullptr);
    return {test::from_device(problem.state.out, rows * shape.value_dim), test::from_device(lse, rows)};
  }
};

void attend_all(const Shape& shape, const std::vector<AttendProblem>& problems) {
  CudaScratch scratch;
  attend_cuda({problems, shape.q_heads, shape.kv_heads, shape.head_dim, shape.value_dim, scale_of(shape)}, scratch,
              nullptr);
  cuda_synchronize(nullptr);
}

Result on_device(const Shape& shape, const std::vector<float>& q, int64_t q_len, const std::vector<HeadRun>& runs,
                 const Sight& sight) {
  DeviceProblem one(shape, q, q_len, runs, sight);
  attend_all(shape, {one.problem});
  return one.finish();
}

/// Scores are about N(0,1), so weights and values are of size one: 2e-5 is a hundred roundings.
void expect_agrees(const Result& got, const Result& want, const std::string& what) {
  expect_close(got.out, want.out, 2e-5, 1e-5, what + " out");
  expect_close(got.lse, want.lse, 2e-5, 1e-6, what + " lse");
}

std::string describe(const Shape& s, int64_t q_len, int64_t entries) {
  return std::string(name_of(s.dtype)) + " q_heads=" + std::to_string(s.q_heads) +
         " kv_heads=" + std::to_string(s.kv_heads) + " head_dim=" + std::to_string(s.head_dim) + "/" +
         std::to_string(s.value_dim) + " q_len=" + std::to_string(q_len) + " entries=" + std::to_string(entries);
}

TEST_F(AttentionCuda, AgreesWithTheReferenceOverTheGrid) {
  for (const auto& [q_heads, kv_heads] : {std::pair<int64_t, int64_t>{2, 2}, {6, 2}, {12, 1}}) {
    for (const auto& [head_dim, value_dim] : {std::pair<int64_t, int64_t>{64, 64}, {80, 80}, {128, 128}, {96, 64}}) {
      for (const int64_t entries : {0, 1, 15, 17, 513, 1100}) {
        for (const DType dtype : test::kDTypes) {
          const Shape shape{q_heads, kv_heads, head_dim, value_dim, dtype};
          const Layer layer(shape, entries, 100 + static_cast<uint64_t>(entries));
          for (const int64_t q_len : {1, 3}) {
            if (entries > 500 && (head_dim != 64 || (q_len > 1 && dtype != DType::bf16))) continue;
            const std::vector<float> q = normal(q_len * q_heads * head_dim, 17);
            expect_agrees(on_device(shape, q, q_len, layer.runs(), {}), on_host(shape, q, q_len, layer.runs(), {}),
                          describe(shape, q_len, entries));
          }
        }
      }
    }
  }
}

/// Entries that an index lists: pages of 16, single ones, all.
std::vector<int32_t> some_entries(int64_t entries, int kind) {
  std::vector<int32_t> index;
  for (int32_t e = 0; e < entries; ++e) {
    if (kind == 0 ? e / 16 % 3 == 1 : kind == 1 ? (e * 7919) % 5 < 2 : true) index.push_back(e);
  }
  return index;
}

std::vector<HeadRun> with_index(std::vector<HeadRun> runs, const std::vector<int32_t>& index) {
  for (HeadRun& run : runs) {
    run.index = index.data();
    run.index_count = static_cast<int64_t>(index.size());
  }
  return runs;
}

TEST_F(AttentionCuda, ReadsWhatAnIndexLists) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Shape shape{6, 2, 64, 64, dtype};
    const Layer layer(shape, 1500, 4);
    const std::vector<float> q = normal(2 * 6 * 64, 5);
    for (const int kind : {0, 1}) {
      const std::vector<int32_t> index = some_entries(1500, kind);
      const std::vector<HeadRun> runs = with_index(layer.runs(), index);
      for (const int64_t window : {0, 600}) {
        const Sight sight{.window = window};
        expect_agrees(on_device(shape, q, 2, runs, sight), on_host(shape, q, 2, runs, sight),
                      describe(shape, 2, 1500) + " window=" + std::to_string(window));
      }
    }
  }
}

TEST_F(AttentionCuda, AnIndexOfEveryEntryHasTheBitsOfNone) {
  const Shape shape{6, 2, 80, 80, DType::f16};
  const Layer layer(shape, 700, 4);
  const std::vector<float> q = normal(6 * 80, 5);
  const std::vector<int32_t> index = some_entries(700, 2);
  const Result dense = on_device(shape, q, 1, layer.runs(), {});
  const Result listed = on_device(shape, q, 1, with_index(layer.runs(), index), {});
  expect_same_bits(listed.out, dense.out, "out");
  expect_same_bits(listed.lse, dense.lse, "lse");
}

TEST_F(AttentionCuda, SeesTheWindowAndTheTokensItMay) {
  const Shape shape{4, 2, 64, 64, DType::bf16};
  const Layer layer(shape, 1300, 6);
  const std::vector<float> q = normal(5 * 4 * 64, 7);
  for (const Sight& sight :
       {Sight{.window = 100}, Sight{.window = 700}, Sight{.causal = false}, Sight{.seen = {0, 3, 512, 513, 1299}},
        Sight{.window = 40, .seen = {1, 50, 90, 600, 1300}}}) {
    expect_agrees(on_device(shape, q, 5, layer.runs(), sight), on_host(shape, q, 5, layer.runs(), sight),
                  "window=" + std::to_string(sight.window) + " seen=" + std::to_string(sight.seen.size()));
  }
}

TEST_F(AttentionCuda, ALatentIsOneWideHead) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Shape shape{16, 1, 576, 512, dtype};  // DeepSeek's
    const Layer layer(shape, 100, 8);
    const std::vector<float> q = normal(2 * 16 * 576, 9);
    expect_agrees(on_device(shape, q, 2, layer.runs(), {}), on_host(shape, q, 2, layer.runs(), {}), name_of(dtype));
  }
}

TEST_F(AttentionCuda, RaggedHeadsMayHaveDifferentLengths) {
  const Shape shape{6, 3, 64, 64, DType::bf16};
  const Layer layer(shape, 900, 8);
  std::vector<HeadRun> runs = layer.runs();
  runs[0].entries = 0;
  runs[1].entries = 530;
  const std::vector<float> q = normal(6 * 64, 9);
  expect_agrees(on_device(shape, q, 1, runs, {.causal = false}), on_host(shape, q, 1, runs, {.causal = false}),
                "ragged");
}

TEST_F(AttentionCuda, PrefillVerificationAndDecodeGiveTheSameBits) {
  const Shape shape{6, 2, 64, 64, DType::bf16};
  constexpr int64_t n = 600;
  const Layer layer(shape, n, 8);
  const int64_t token = shape.q_heads * shape.head_dim;
  const std::vector<float> q = normal(n * token, 9);
  const std::vector<float> last(q.end() - 20 * token, q.end());
  const Result verified = on_device(shape, last, 20, layer.runs(), {});
  for (const int64_t q_len : {1, 3}) {
    for (const int64_t behind : {0, 9}) {  // tokens that come after
      const std::vector<float> some(q.end() - (q_len + behind) * token, q.end() - behind * token);
      const Result r = on_device(shape, some, q_len, layer.runs(n - behind), {});
      const auto part = [&](const std::vector<float>& all, int64_t width) {
        return std::vector<float>(all.end() - (q_len + behind) * width, all.end() - behind * width);
      };
      expect_same_bits(r.out, part(verified.out, token), "out of " + std::to_string(q_len));
      expect_same_bits(r.lse, part(verified.lse, shape.q_heads), "lse of " + std::to_string(q_len));
    }
  }
}

TEST_F(AttentionCuda, AQueryOfPackedEntriesHasTheSameBitsAloneAndAmongOthers) {
  for (const int bits : {2, 4, 8}) {
    const Shape shape{6, 2, 64, 64, DType::bf16};
    const test::PackedLayer layer(shape, {.bits = bits}, 600, 544, 530, 8);
    const int64_t token = shape.q_heads * shape.head_dim;
    const std::vector<float> q = normal(9 * token, 9);
    const Result together = on_device(shape, q, 9, layer.packed_runs(), {});
    const Result alone = on_device(shape, {q.end() - token, q.end()}, 1, layer.packed_runs(), {});
    expect_same_bits(alone.out, {together.out.end() - token, together.out.end()}, "out");
    expect_same_bits(alone.lse, {together.lse.end() - shape.q_heads, together.lse.end()}, "lse");
  }
}

TEST_F(AttentionCuda, ASequenceHasTheSameBitsAloneAndInARaggedBatch) {
  const Shape shape{6, 2, 64, 64, DType::bf16};
  const int64_t lengths[] = {1, 30, 1100, 16, 0, 513}, q_lens[] = {1, 30, 1, 2, 0, 1};
  std::vector<Layer> layers;
  std::vector<std::vector<float>> q;
  std::vector<std::unique_ptr<DeviceProblem>> batch;
  std::vector<AttendProblem> problems;
  for (size_t i = 0; i < std::size(lengths); ++i) {
    Shape own = shape;
    own.dtype = i == 3 ? DType::f32 : DType::bf16;
    layers.emplace_back(own, lengths[i], 50 + i);
    q.push_back(normal(q_lens[i] * shape.q_heads * shape.head_dim, 70 + i));
    batch.push_back(std::make_unique<DeviceProblem>(own, q[i], q_lens[i], layers[i].runs(), Sight{}));
    problems.push_back(batch[i]->problem);
  }
  attend_all(shape, problems);
  for (size_t i = 0; i < std::size(lengths); ++i) {
    const Result together = batch[i]->finish();
    const Result alone = on_device(batch[i]->shape, q[i], q_lens[i], layers[i].runs(), {});
    expect_same_bits(together.out, alone.out, "sequence " + std::to_string(i));
    expect_same_bits(together.lse, alone.lse, "sequence " + std::to_string(i));
  }
}

TEST_F(AttentionCuda, ChunksThatABlockWalksHaveTheBitsOfChunksSpreadOut) {
  const Shape shape{4, 1, 16, 32, DType::f32};
  const Layer layer(shape, 1100, 18);
  const int64_t token = shape.q_heads * shape.head_dim;
  const std::vector<float> q = normal(40 * token, 19);  // 160 rows: blocks walk
  const Sight sight{.window = 1030};
  const Result walked = on_device(shape, q, 40, layer.runs(), sight);
  expect_agrees(walked, on_host(shape, q, 40, layer.runs(), sight), "walked");
  const Result spread = on_device(shape, {q.end() - 3 * token, q.end()}, 3, layer.runs(), sight);
  expect_same_bits(spread.out, {walked.out.end() - 3 * shape.q_heads * shape.value_dim, walked.out.end()}, "out");
  expect_same_bits(spread.lse, {walked.lse.end() - 3 * shape.q_heads, walked.lse.end()}, "lse");
}

TEST_F(AttentionCuda, SegmentsMergeIntoOne) {
  const Shape shape{6, 2, 64, 64, DType::f32};
  const Layer layer(shape, 300, 11);
  const std::vector<float> q = normal(6 * 64, 12);
  const Result want = on_host(shape, q, 1, layer.runs(), {});
  std::vector<std::vector<float>> memory;
  const auto segment = [&](int64_t begin, int64_t end) {
    std::vector<HeadRun> runs;
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      memory.push_back(layer.cells(CellKind::keys, h, begin, end));
      memory.push_back(layer.cells(CellKind::values, h, begin, end));
      runs.push_back({(memory.end() - 2)->data(), memory.back().data(), end - begin});
    }
    return runs;
  };
  DeviceProblem one(shape, q, 1, segment(0, 100), {}), two(shape, q, 1, segment(100, 300), {});
  attend_all(shape, {one.problem, two.problem});
  merge_attention_cuda(one.problem.state, two.problem.state, shape.q_heads, 64, nullptr);
  const Result merged = one.finish();
  expect_agrees(merged, want, "merged");
  // Merging equals folding one segment after the other into one state.
  DeviceProblem fold(shape, q, 1, segment(0, 100), {}), rest(shape, q, 1, segment(100, 300), {});
  attend_all(shape, {fold.problem});
  rest.problem.state = fold.problem.state;
  attend_all(shape, {rest.problem});
  expect_same_bits(fold.finish().out, merged.out, "folded");
}

TEST_F(AttentionCuda, PackedEntriesHaveTheBitsOfTheDecodedNumbers) {
  static const std::vector<float> codebook{-1.5f, -0.4f, 0.4f, 1.5f};
  const QuantFormat formats[] = {
      {.bits = 1, .meta = DType::f16, .rule = QuantRule::midpoint},
      {.bits = 2},
      {.bits = 3, .token_groups = true},
      {.bits = 4, .meta = DType::f16},
      {.bits = 5},
      {.bits = 8},
      {.bits = 8, .rule = QuantRule::absmax, .levels = Levels::e4m3},
      {.bits = 8, .rule = QuantRule::absmax, .levels = Levels::e5m2},
      {.bits = 2,
       .rule = QuantRule::norm,
       .levels = Levels::codebook,
       .codebook = codebook.data(),
       .token_groups = true},
      {.bits = 4, .rule = QuantRule::mx, .levels = Levels::codebook, .codebook = kLevelsE2M1, .token_groups = true}};
  for (QuantFormat format : formats) {
    for (const int64_t head_dim : {64, 80}) {
      format.group_size = head_dim == 80 ? 16 : 32;
      const Shape shape{6, 2, head_dim, head_dim, DType::f32};
      // KIVI's boundaries for T = 300, R = 128: keys 256, values 172.
      for (const auto& [n, keys, values] :
           {std::tuple<int64_t, int64_t, int64_t>{300, 256, 172}, {64, 64, 64}, {33, 0, 17}, {40, 32, 0}}) {
        const test::PackedLayer layer(shape, format, n, keys, values, 7);
        for (const int64_t q_len : {1, 3}) {
          if (q_len > 1 && n > 64) continue;
          const std::vector<float> q = normal(q_len * 6 * head_dim, 8);
          const std::string what = "bits=" + std::to_string(format.bits) + " " + describe(shape, q_len, n);
          const Result got = on_device(shape, q, q_len, layer.packed_runs(), {});
          const Result decoded = on_device(shape, q, q_len, layer.decoded_runs(), {});
          expect_same_bits(got.lse, decoded.lse, what);
          if (values == 0 || values == n) expect_same_bits(got.out, decoded.out, what);
          expect_agrees(got, on_host(shape, q, q_len, layer.decoded_runs(), {}), what);
        }
      }
    }
  }
}

/// As tolerance() of attention_packed_test.cpp says for integers; here only the factors that are split in two are
/// rounded, to 2^-17 of each.
constexpr double kSplitTolerance = 5e-5;

TEST_F(AttentionCuda, CodesInCachesOf16BitsAgreeWithTheDecodedNumbers) {
  for (const int bits : {1, 2, 3, 4, 8}) {
    for (const int64_t head_dim : {64, 80, 128}) {
      for (const int first_level : {0, -3}) {
        const QuantFormat format{.bits = bits,
                                 .group_size = head_dim == 80   ? 16
                                               : head_dim == 64 ? 64
                                                                : 32,
                                 .meta = bits == 2 ? DType::f16 : DType::bf16,
                                 .rule = bits == 1 ? QuantRule::midpoint : QuantRule::minimum,
                                 .first_level = first_level};
        const Shape shape{6, 2, head_dim, head_dim, first_level == 0 ? DType::bf16 : DType::f16};
        for (const auto& [n, keys, values] :
             {std::tuple<int64_t, int64_t, int64_t>{300, 256, 172}, {576, 576, 576}, {64, 64, 17}}) {
          if (n == 576 && first_level != 0) continue;
          const test::PackedLayer layer(shape, format, n, keys, values, 7);
          const int64_t q_len = n == 64 ? 5 : 1;
          const std::vector<float> q = normal(q_len * 6 * head_dim, 8);
          const std::string what = "bits=" + std::to_string(bits) + " " + describe(shape, q_len, n);
          const Result got = on_device(shape, q, q_len, layer.packed_runs(), {});
          const Result want = on_host(layer.decoded_shape(), q, q_len, layer.decoded_runs(), {});
          expect_close(got.out, want.out, kSplitTolerance, 1e-5, what + " out");
          expect_close(got.lse, want.lse, kSplitTolerance, 1e-6, what + " lse");
        }
      }
    }
  }
}

TEST_F(AttentionCuda, PackedEntriesMayBeListedAndMixedWith16BitOnes) {
  const Shape shape{4, 2, 64, 64, DType::bf16};
  const test::PackedLayer layer(shape, {.bits = 4}, 700, 640, 572, 7);
  const std::vector<float> q = normal(4 * 64, 8);
  for (const int kind : {0, 1}) {
    const std::vector<int32_t> index = some_entries(700, kind);
    const std::vector<HeadRun> packed = with_index(layer.packed_runs(), index);
    const Result got = on_device(shape, q, 1, packed, {});
    const Result want = on_host(layer.decoded_shape(), q, 1, with_index(layer.decoded_runs(), index), {});
    expect_close(got.out, want.out, kSplitTolerance, 1e-5, "out");
    expect_close(got.lse, want.lse, kSplitTolerance, 1e-6, "lse");
  }
}

TEST_F(AttentionCuda, AGraphGivesTheBitsOfTheCallsItRecorded) {
  const Shape shape{4, 2, 64, 64, DType::bf16};
  const Layer layer(shape, 1100, 13);
  const std::vector<float> q = normal(4 * 64, 14);
  const Result want = on_device(shape, q, 1, layer.runs(), {});
  DeviceProblem one(shape, q, 1, layer.runs(), {});
  const CudaQueue queue;
  CudaScratch scratch;
  cuda_synchronize(nullptr);
  const CudaGraph graph(queue.stream(), [&] {
    init_attention_cuda(one.problem.state, 1, shape.q_heads, 64, queue.stream());
    attend_cuda({{&one.problem, 1}, shape.q_heads, shape.kv_heads, 64, 64, scale_of(shape)}, scratch, queue.stream());
    finish_attention_cuda(one.problem.state, 1, shape.q_heads, 64, one.lse, queue.stream());
  });
  for (int turn = 0; turn < 2; ++turn) {
    graph.launch(queue.stream());
    cuda_synchronize(queue.stream());
    expect_same_bits(test::from_device(one.problem.state.out, 4 * 64), want.out, "turn " + std::to_string(turn));
  }
}

/// A step recorded once and launched with other lengths has the bits of described runs; runs lack `dropped` entries.
void expect_bits_of_described_runs(DType dtype, int64_t q_len, const std::vector<int64_t>& dropped,
                                   std::initializer_list<int32_t> lengths) {
  const Shape shape{4, 2, 32, 32, dtype};
  const Layer layer(shape, 1100, 9);
  const std::vector<float> q = normal(q_len * 4 * 32, 10);
  const Sight sight{.window = q_len == 1 ? 600 : 0};
  DeviceProblem one(shape, q, q_len, layer.runs(), sight);
  int32_t* before = one.device.memory<int32_t>(1);
  const RunGrowth growth{.before = before, .dropped = dropped.data()};
  CudaScratch scratch;
  const CudaQueue queue;
  cuda_synchronize(nullptr);
  const CudaGraph graph(queue.stream(), [&] {
    init_attention_cuda(one.problem.state, q_len, 4, 32, queue.stream());
    attend_cuda({{&one.problem, 1}, 4, 2, 32, 32, scale_of(shape)}, {&growth, 1}, scratch, queue.stream());
  });
  for (const int32_t length : lengths) {
    cuda_upload(before, &length, 4, queue.stream());
    graph.launch(queue.stream());
    cuda_synchronize(queue.stream());
    std::vector<HeadRun> runs = layer.runs();
    for (size_t h = 0; h < runs.size(); ++h) runs[h].entries = length + q_len - (dropped.empty() ? 0 : dropped[h]);
    const Result got = one.finish(), want = on_device(shape, q, q_len, runs, sight);
    expect_same_bits(got.out, want.out, describe(shape, q_len, length));
    expect_same_bits(got.lse, want.lse, describe(shape, q_len, length));
  }
}

TEST_F(AttentionCuda, RunsThatGrowInAGraphHaveTheBitsOfDescribedOnes) {
  for (const DType dtype : test::kDTypes) {
    for (const int64_t q_len : {1, 70}) {  // 140 rows of a head: blocks walk the chunks
      expect_bits_of_described_runs(dtype, q_len, {}, {1030, 440, 0});
      expect_bits_of_described_runs(dtype, q_len, {590, 70}, {1030, 620, 590});  // heads of 1 to 3 chunks
    }
  }
}

}  // namespace
}  // namespace kvarena::kernels
