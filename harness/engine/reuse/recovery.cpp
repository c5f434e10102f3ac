#include "harness/engine/reuse/recovery.h"

#include <fmt/format.h>

#include "harness/core/error.h"
#include "kernels/rope/rope.h"

namespace kvarena {

void require_recoverable(const Transformer& model, int64_t tokens) {
  const RopeScaling& scaling = model.config().rope_scaling;
  if (scaling.type != RopeScaling::Type::dynamic || tokens <= scaling.original_max_position) return;
  fail({.place = model.config().name,
        .found = fmt::format(
            "a prompt of {} tokens under dynamic rope scaling, which turns keys by the prompt's length", tokens),
        .expected = fmt::format("at most {}, the original window", scaling.original_max_position),
        .action = "chunks can be reused below that length or with a model of another scaling"});
}

void append_recovered(const Transformer& model, const KvCache& chunk, KvCache& cache) {
  const std::vector<double>& inverse = model.rope().inverse;
  const auto half = static_cast<int64_t>(inverse.size());
  const auto distance = static_cast<int32_t>(cache.length);
  std::vector<float> cos(inverse.size());
  std::vector<float> sin(inverse.size());
  // The stored keys have the scaling's magnitude already.
  kernels::rotation_tables(&distance, 1, inverse.data(), half, /*magnitude=*/1, cos.data(), sin.data());
  for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
    EntrySegment& to = cache.layers[layer].tail();
    to.append_entries(chunk.layers[layer].tail(), 0, chunk.length);
    if (distance != 0) to.rotate_keys(distance, chunk.length, cos, sin);
  }
  cache.length += chunk.length;
}

}  // namespace kvarena
