#include "datasets/niah_protocol.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvarena::datasets {
double niah_linspace(double min, double max, int64_t count, int64_t i) {
  if (count == 1) return min;
  if (i + 1 == count) return max;  // numpy sets the end exactly
  return min + static_cast<double>(i) * ((max - min) / static_cast<double>(count - 1));
}

std::vector<int64_t> niah_linear_grid(double min, double max, int64_t count) {
  std::vector<int64_t> grid;
  for (int64_t i = 0; i < count; ++i) {
    grid.push_back(static_cast<int64_t>(std::nearbyint(niah_linspace(min, max, count, i))));
  }
  return grid;
}

std::vector<double> niah_sigmoid_depths(double min, double max, int64_t count) {
  std::vector<double> depths;
  for (int64_t i = 0; i < count; ++i) {
    const double x = niah_linspace(min, max, count, i);
    const bool end = x == 0 || x == 100;
    depths.push_back(end ? x : std::nearbyint(1000 * (100 / (1 + std::exp(0.1 * (x - 50))))) / 1000);
  }
  return depths;
}

NeedlePlacement niah_insert(std::span<const int32_t> context, std::span<const int32_t> needle,
                            std::span<const int32_t> period_ids, int64_t context_length, int64_t buffer,
                            double depth_percent) {
  const auto limit = static_cast<size_t>(std::max<int64_t>(context_length - buffer, 0));
  if (context.size() + needle.size() > limit) {
    context = context.first(std::min(context.size(), limit - std::min(limit, needle.size())));
  }
  size_t begin = context.size();
  if (depth_percent < 100) {
    begin = static_cast<size_t>(static_cast<double>(context.size()) * (depth_percent / 100));
    while (begin > 0 && std::find(period_ids.begin(), period_ids.end(), context[begin - 1]) == period_ids.end()) {
      --begin;
    }
  }
  NeedlePlacement placement{.begin = begin, .walked_to_start = begin == 0 && depth_percent > 0};
  placement.ids.reserve(context.size() + needle.size());
  placement.ids.assign(context.begin(), context.begin() + static_cast<ptrdiff_t>(begin));
  placement.ids.insert(placement.ids.end(), needle.begin(), needle.end());
  placement.ids.insert(placement.ids.end(), context.begin() + static_cast<ptrdiff_t>(begin), context.end());
  return placement;
}

int64_t spread_order(int64_t i, int64_t count) {
  // Steps of the golden section cover a range evenly at every length.
  int64_t stride = std::max<int64_t>(1, static_cast<int64_t>(0.6180339887 * static_cast<double>(count)));
  while (std::gcd(stride, count) != 1) ++stride;
  return static_cast<int64_t>(static_cast<uint64_t>(i) * static_cast<uint64_t>(stride) % static_cast<uint64_t>(count));
}

}  // namespace kvarena::datasets
