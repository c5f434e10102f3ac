#pragma once
// A text that prompts under load begin with, so that a server can keep what they have in common.

#include <cstdint>
#include <string>

#include "datasets/token_counter.h"
#include "datasets/workload.h"

namespace kvarena::evaluate {

/// Sentences of so many tokens.
[[nodiscard]] std::string prefix_text(const datasets::TokenCounter& tokens, int64_t count);

/// Puts the text in front of the sample's first message.
void put_in_front(const std::string& text, datasets::Sample& sample);

}  // namespace kvarena::evaluate
