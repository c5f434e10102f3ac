#include "harness/model/pass_checks.h"

#include <fmt/format.h>

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

}  // namespace kvarena
