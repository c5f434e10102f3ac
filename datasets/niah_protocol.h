#pragma once
// The rules of the needle-in-a-haystack test as its first author's code has them (section 6 of the workload sheet):
// grid, place of the needle. Pure functions over numbers and token ids.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvarena::datasets {

/// numpy: linspace(min, max, count)[i].
[[nodiscard]] double niah_linspace(double min, double max, int64_t count, int64_t i);

/// numpy: round(linspace(min, max, count)), halves to even. count 1 gives min.
[[nodiscard]] std::vector<int64_t> niah_linear_grid(double min, double max, int64_t count);

/// Depths in percent whose spacing is dense at both ends: x at 0 and 100, else 100 / (1 + exp(0.1 (x - 50))) rounded to
/// 3 digits, for x = linspace(min, max, count). Falling between its ends, as in the official code.
[[nodiscard]] std::vector<double> niah_sigmoid_depths(double min, double max, int64_t count);

/// A context with its needle.
struct NeedlePlacement {
  std::vector<int32_t> ids;
  size_t begin = 0;              // index of the needle's first id
  bool walked_to_start = false;  // no full stop was found before the wanted depth
};

/// Puts `needle` at `depth_percent` of `context`, right after a token of `period_ids`. The context is first cut so that
/// both have at most context_length - buffer ids. Depth 100 appends.
[[nodiscard]] NeedlePlacement niah_insert(std::span<const int32_t> context, std::span<const int32_t> needle,
                                          std::span<const int32_t> period_ids, int64_t context_length, int64_t buffer,
                                          double depth_percent);

/// Visits 0 .. count-1 once each, so that any first part of the visit is spread over the whole range: a run with a
/// limit still sees all depths. Returns the cell of visit `i`.
[[nodiscard]] int64_t spread_order(int64_t i, int64_t count);

}  // namespace kvarena::datasets
