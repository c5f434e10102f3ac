#include "harness/cache/packed_segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"

namespace kvarena {
namespace {

/// What the listed entries decode to.
EntrySegment decoded(const PackedSegment& segment, const EntryLists& listed) {
  LayerShape shape = segment.shape();
  shape.dtype = DType::f32;
  const int64_t d = shape.head_dim;
  EntrySegment result(shape, std::make_shared<MemoryLedger>());
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    std::vector<float> keys(static_cast<size_t>(segment.entries(h) * d));
    std::vector<float> values(keys.size());
    segment.read(h, keys.data(), values.data());
    const std::vector<int32_t> all = segment.positions(h);
    std::vector<int32_t> positions;
    for (size_t i = 0; i < listed[h].size(); ++i) {  // ascending: nothing is overwritten before it is moved
      std::copy_n(&keys[listed[h][i] * d], d, &keys[static_cast<int64_t>(i) * d]);
      std::copy_n(&values[listed[h][i] * d], d, &values[static_cast<int64_t>(i) * d]);
      positions.push_back(all[listed[h][i]]);
    }
    result.append_to_head(h, positions, keys.data(), values.data(), d);
  }
  return result;
}

}  // namespace

void PackedSegment::attend_listed(const EntryLists& listed, const LayerQueries& queries,
                                  kernels::AttentionState& state) const {
  decoded(*this, listed).attend(queries, /*causal=*/false, state);
}

void PackedSegment::add_listed_probabilities(const EntryLists& listed, const LayerQueries& queries, const float* lse,
                                             float* sums, int64_t row_stride) const {
  decoded(*this, listed).add_probabilities(queries, /*causal=*/false, lse, sums, row_stride);
}

void require_finite(std::span<const float> rows, const char* what, int64_t head) {
  if (std::ranges::all_of(rows, [](float x) { return std::isfinite(x); })) return;
  fail({.place = fmt::format("kv head {}", head),
        .found = fmt::format("a {} that is not finite", what),
        .expected = "numbers that can be quantised",
        .action = "the checkpoint or its dtype overflows; try dtype f32"});
}

}  // namespace kvarena
