#pragma once
// The most likely next tokens.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "harness/model/tokenizer/tokenizer.h"

namespace kvarena::cli {

/// [{"id", "token", "logit", "probability"}] of the `count` largest of `logits` [vocab_size], ties to the lower id.
[[nodiscard]] nlohmann::json top_tokens(std::span<const float> logits, int64_t count, const Tokenizer& tokenizer);

}  // namespace kvarena::cli
