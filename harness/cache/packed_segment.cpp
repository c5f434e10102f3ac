#include "harness/cache/packed_segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"

namespace kvarena {
void require_finite(std::span<const float> rows, const char* what, int64_t head) {
  if (std::ranges::all_of(rows, [](float x) { return std::isfinite(x); })) return;
  fail({.place = fmt::format("kv head {}", head),
        .found = fmt::format("a {} that is not finite", what),
        .expected = "numbers that can be quantised",
        .action = "the checkpoint or its dtype overflows; try dtype f32"});
}

}  // namespace kvarena
