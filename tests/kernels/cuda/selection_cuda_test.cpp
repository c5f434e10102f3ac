// Page bounds, scores of cells and top-k on the device.
#include "kernels/cell_scores/cell_scores.h"
#include "kernels/cell_scores/cell_scores_cuda.h"
#include "kernels/page_bounds/page_bounds_cuda.h"
#include "kernels/top_k/top_k.h"
#include "kernels/top_k/top_k_cuda.h"
#include "tests/kernels/cuda/device_support.h"

namespace kvarena::kernels {
namespace {

using test::CudaTest;
using test::expect_close;
using test::expect_same_bits;
using test::normal;
using test::OnDevice;

class SelectionCuda : public CudaTest {};

TEST_F(SelectionCuda, PageBoundsHaveTheHostsBitsStepByStep) {
  for (const DType dtype : test::kDTypes) {
    const test::Shape shape{1, 1, 80, 80, dtype};
    constexpr int64_t n = 100, pages = 7, rows = 3;
    const test::Layer layer(shape, n, 3);
    std::vector<float> memory = layer.cells(CellKind::keys, 0, 0, n), low(pages * 80), high(pages * 80);
    const Cells keys{CellKind::keys, dtype, 80, memory.data()};
    update_page_bounds(keys, 0, n, {low.data(), high.data()});
    OnDevice device;
    Cells device_keys = keys;
    device_keys.data = device.copy(memory);
    const PageBounds bounds{device.memory<float>(pages * 80), device.memory<float>(pages * 80)};
    const PageBounds others{device.memory<float>(pages * 80), device.memory<float>(pages * 80)};
    CudaScratch scratch;
    for (const auto& [first, end] : {std::pair<int64_t, int64_t>{0, 5}, {5, 31}, {31, 32}, {32, n}}) {
      const BoundsUpdate both[] = {{device_keys, first, end, bounds}, {device_keys, 0, end / 2, others}};
      update_page_bounds_cuda(both, scratch, nullptr);
    }
    expect_same_bits(test::from_device(bounds.low, pages * 80), low, name_of(dtype));
    expect_same_bits(test::from_device(bounds.high, pages * 80), high, name_of(dtype));
    expect_same_bits(test::from_device(others.low, 3 * 80), {low.begin(), low.begin() + 3 * 80}, "another head");
    const std::vector<float> q = normal(rows * 80, 4);
    std::vector<float> scores(rows * 9, 1.0f);
    auto* device_scores = device.copy(scores);
    auto* fewer_scores = device.copy(scores);
    const float* device_q = device.copy(q);
    const PageScoring both[] = {{device_q, rows, 80, bounds, pages, 80, device_scores, 9},
                                {device_q, 1, 80, bounds, 2, 80, fewer_scores, 9}};
    page_scores_cuda(both, scratch, nullptr);
    page_scores(q.data(), rows, 80, {low.data(), high.data()}, pages, 80, scores.data(), 9);
    expect_close(test::from_device(device_scores, rows * 9), scores, 2e-5, 1e-6, "scores");
    expect_close(test::from_device(fewer_scores, 3), {scores[0], scores[1], 1.0f}, 2e-5, 1e-6, "another head's scores");
  }
}

TEST_F(SelectionCuda, CellScoresHaveTheHostsBitsAndWriteNoEntryTooMany) {
  for (const DType dtype : test::kDTypes) {
    for (const int64_t channels : {1, 5, 80}) {
      for (const auto& [n, rows] : {std::pair<int64_t, int64_t>{1, 1}, {17, 3}, {300, 5}}) {
        std::vector<float> memory = normal(cells_for(n) * 16 * channels, 6);
        std::vector<uint16_t> stored(static_cast<size_t>(cells_for(n) * 16 * channels * size_of(dtype) / 2));
        for (size_t i = 0; i < memory.size(); ++i) {
          store_element(stored.data(), dtype, static_cast<int64_t>(i), memory[i]);
        }
        const Cells keys{CellKind::keys, dtype, channels, stored.data()};
        const std::vector<float> q = normal(rows * channels, 7);
        std::vector<float> scores(static_cast<size_t>(rows * (n + 3)), 5.0f);
        OnDevice device;
        Cells device_keys = keys;
        device_keys.data = device.copy(stored);
        auto* device_scores = device.copy(scores);
        const float* device_q = device.copy(q);
        auto* fewer_scores = device.copy(scores);
        const CellScoring both[] = {{device_q, 1, channels, device_keys, 1, fewer_scores, n + 3},
                                    {device_q, rows, channels, device_keys, n, device_scores, n + 3}};
        CudaScratch scratch;
        cell_scores_cuda(both, scratch, nullptr);
        const std::string what = std::string(name_of(dtype)) + " channels=" + std::to_string(channels);
        const std::vector<float> got = test::from_device(device_scores, rows * (n + 3));
        for (const CpuPath path : test::simd_paths()) {
          const ScopedCpuPath on(path);
          cell_scores(q.data(), rows, channels, keys, n, scores.data(), n + 3);
          expect_same_bits(got, scores, what);
        }
        const ScopedCpuPath reference(CpuPath::reference);
        cell_scores(q.data(), rows, channels, keys, n, scores.data(), n + 3);
        expect_close(got, scores, 2e-5, 1e-6, what);
        expect_close(test::from_device(fewer_scores, 2), {scores[0], 5.0f}, 2e-5, 1e-6, "another head");
      }
    }
  }
}

void expect_host_choice(const std::vector<float>& scores, int64_t rows, int64_t stride, int64_t n, int64_t k) {
  OnDevice device;
  auto* index = device.memory<int32_t>(rows * k);
  auto* chosen = device.memory<int32_t>(rows);
  top_k_rows_cuda(device.copy(scores), rows, n, stride, k, index, chosen, nullptr);
  const std::vector<int32_t> got = test::from_device(index, rows * k), counts = test::from_device(chosen, rows);
  std::vector<int32_t> want(static_cast<size_t>(k));
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t count = top_k(scores.data() + r * stride, n, k, want.data());
    ASSERT_EQ(counts[static_cast<size_t>(r)], count) << "row " << r;
    if (count < 0) continue;
    ASSERT_EQ(std::vector<int32_t>(got.begin() + r * k, got.begin() + (r + 1) * k), want)
        << "row " << r << " n=" << n << " k=" << k;
  }
}

TEST_F(SelectionCuda, TopKChoosesWhatTheHostChooses) {
  std::mt19937_64 generator(3);
  for (const int64_t n : {1, 31, 256, 1000}) {
    std::vector<float> scores = normal(4 * (n + 2), 8);
    for (int64_t i = 0; i < n; ++i) {
      scores[static_cast<size_t>(n + 2 + i)] = static_cast<float>(generator() % 7) - 3;  // many equals
      scores[static_cast<size_t>(2 * (n + 2) + i)] = i % 2 == 0 ? 0.0f : -0.0f;
      if (i % 5 == 0) scores[static_cast<size_t>(3 * (n + 2) + i)] = i % 2 == 0 ? INFINITY : -INFINITY;
    }
    for (const int64_t k : {int64_t{0}, int64_t{1}, n / 3, n - 1, n}) expect_host_choice(scores, 4, n + 2, n, k);
  }
}

TEST_F(SelectionCuda, TopKNamesTheRowsThatHoldNaN) {
  std::vector<float> scores = normal(3 * 400, 9);
  scores[400 + 399] = std::nanf("");
  expect_host_choice(scores, 3, 400, 400, 17);
}

}  // namespace
}  // namespace kvarena::kernels
