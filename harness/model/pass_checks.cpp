#include "harness/model/pass_checks.h"

#include <fmt/format.h>

#include "harness/core/error.h"

namespace kvarena {

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
