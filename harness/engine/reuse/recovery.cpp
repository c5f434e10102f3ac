#include "harness/engine/reuse/recovery.h"

#include <fmt/format.h>

#include "harness/core/error.h"
#include "kernels/rope/rope.h"

namespace kvarena {

void require_recoverable(const Transformer& model, int64_t tokens) {
  const RopeScaling& scaling = model.config().rope_scaling;
  if (!scaling.by_length() || tokens <= scaling.original_max_position) return;
  fail({.place = model.config().name,
        .found =
            fmt::format("a prompt of {} tokens under a rope scaling that turns keys by the prompt's length", tokens),
        .expected = fmt::format("at most {}, the original window", scaling.original_max_position),
        .action = "chunks can be reused below that length or with a model of another scaling"});
}

void append_recovered(const Transformer& model, const KvCache& chunk, KvCache& cache) {
  const auto distance = static_cast<int32_t>(cache.length);
  for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
    const std::vector<double>& inverse = model.rope(static_cast<int64_t>(layer)).inverse;
    std::vector<float> cos(inverse.size()), sin(inverse.size());
    // The stored keys have the scaling's magnitude already.
    kernels::rotation_tables(&distance, 1, inverse.data(), std::ssize(inverse), /*magnitude=*/1, cos.data(),
                             sin.data());
    EntrySegment& to = cache.layers[layer].tail();
    to.append_entries(chunk.layers[layer].tail(), 0, chunk.length);
    if (distance != 0) to.rotate_keys(distance, chunk.length, cos, sin);
  }
  cache.length += chunk.length;
}

}  // namespace kvarena
