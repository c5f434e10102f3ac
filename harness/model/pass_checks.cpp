#include "harness/model/pass_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "harness/core/error.h"
#include "harness/model/attention_projections.h"
#include "kernels/cells/cells.h"

namespace kvarena {

void check_entries(const ModelConfig& config) {
  const int64_t head_dim = cache_shape(config, 0, kernels::DType::f32).head_dim;
  if (head_dim % kernels::kCell == 0) return;
  fail({.place = config.name,
        .found = config.is_latent() ? fmt::format("a latent of {} and {} rotated channels", config.latent.kv_lora_rank,
                                                  config.latent.rope_head_dim)
                                    : fmt::format("head_dim {}", head_dim),
        .expected = fmt::format("a multiple of {}", kernels::kCell)});
}

void require_entries(const ModelConfig& config, const std::string& place, std::string_view what) {
  if (config.recurrent_layers.empty()) return;
  fail({.place = place,
        .found = fmt::format("{} of {}, {} of whose layers have a state of all tokens before it", what, config.name,
                             config.layers - config.cached_layers()),
        .expected = "a model whose layers all hold entries"});
}

void check_tokens(const ModelConfig& config, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    if (token >= 0 && token < config.vocab_size) continue;
    fail({.place = "sequence",
          .found = fmt::format("token id {}", token),
          .expected = fmt::format("0 to {}", config.vocab_size - 1)});
  }
}

void check_window(const ModelConfig& config, int64_t length) {
  if (length <= config.max_position) return;
  fail({.place = "sequence",
        .found = fmt::format("{} tokens", length),
        .expected = fmt::format("at most {}, the model's window", config.max_position)});
}

void check_positions(std::span<const int32_t> positions, int64_t length) {
  KVARENA_ASSERT(std::ranges::is_sorted(positions, std::less_equal{}) && !positions.empty() && positions.front() >= 0,
                 "positions ascend");
  const auto fresh = positions.end() - std::ranges::lower_bound(positions, length);
  KVARENA_ASSERT(fresh == std::max<int64_t>(0, positions.back() + 1 - length),
                 fmt::format("a gap between a cache of {} and position {}", length, positions.back()));
}

}  // namespace kvarena
