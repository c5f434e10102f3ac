#pragma once
// Families of models that no device computes.

#include <algorithm>
#include <array>
#include <string_view>

namespace kvarena::testing {

inline bool only_host_computes(std::string_view architecture) {
  constexpr std::array<std::string_view, 11> kFamilies = {
      "gemma3_text", "glm4",       "gpt_oss",      "granite",          "llama4_text", "olmo2",
      "phi3",        "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "smollm3"};
  return std::ranges::find(kFamilies, architecture) != kFamilies.end();
}

}  // namespace kvarena::testing
