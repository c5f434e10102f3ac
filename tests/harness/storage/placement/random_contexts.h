#pragma once
// Random placement problems for property tests.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "harness/core/random.h"
#include "harness/storage/placement/problem.h"

namespace kvarena::storage::testing {

/// Two bounded tiers and an unlimited one; capacities are shares of what all contexts take uncompressed.
inline std::vector<StorageTier> three_tiers(double total_bytes, double fast_share, double middle_share) {
  return {{.name = "host", .capacity = static_cast<int64_t>(fast_share * total_bytes), .bandwidth = 20e9},
          {.name = "disk", .capacity = static_cast<int64_t>(middle_share * total_bytes), .bandwidth = 2e9},
          {.name = "remote", .bandwidth = 0.5e9}};
}

/// Uncompressed, and `methods` at `keeps` of the bytes. Quality falls as keep falls, by a sensitivity of the context's
/// own and a little noise.
inline Context random_context(int64_t id, const RandomStream& random, int64_t methods,
                              const std::vector<double>& keeps) {
  uint64_t draw = static_cast<uint64_t>(id) * 1000;
  Context context{.id = id};
  const double bytes = 1e9 + 7e9 * random.uniform(draw++);
  const double sensitivity = 0.05 + 0.9 * random.uniform(draw++);
  context.accesses = 1 + static_cast<int64_t>(random.below(9, draw++));
  context.forms.push_back({.bytes = static_cast<int64_t>(bytes)});
  for (int64_t m = 0; m < methods; ++m) {
    const double bend = 0.5 + 2 * random.uniform(draw++);
    for (const double keep : keeps) {
      const double loss = sensitivity * std::pow(1 - keep, bend) + 0.02 * random.uniform(draw++);
      context.forms.push_back({.method = fmt::format("m{}", m),
                               .keep = keep,
                               .bytes = static_cast<int64_t>(bytes * keep),
                               .quality = std::clamp(1 - loss, 0.0, 1.0)});
    }
  }
  return context;
}

/// A tier of ready caches in front. They take two to three times the bytes at rest, and reading a question takes less
/// time than restoring.
inline void add_ready_tier(std::vector<StorageTier>& tiers, double capacity, std::vector<Context>& contexts,
                           const RandomStream& random) {
  tiers.insert(tiers.begin(), {.name = "device",
                               .capacity = static_cast<int64_t>(capacity),
                               .bandwidth = std::numeric_limits<double>::infinity(),
                               .ready = true});
  for (Context& context : contexts) {
    for (size_t i = 0; i < context.forms.size(); ++i) {
      Form& form = context.forms[i];
      const double bytes = static_cast<double>(form.bytes);
      const double draw = random.uniform(500'000 + static_cast<uint64_t>(context.id) * 100 + i);
      form.ready_bytes = static_cast<int64_t>(bytes * (2 + draw));
      form.restore_s = bytes / 4e9;
      form.ready_s = form.restore_s + 0.02 * draw;
    }
  }
}

inline double total_bytes(const std::vector<Context>& contexts) {
  double total = 0;
  for (const Context& context : contexts) total += static_cast<double>(context.forms.front().bytes);
  return total;
}

}  // namespace kvarena::storage::testing
