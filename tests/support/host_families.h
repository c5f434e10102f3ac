#pragma once
// Families of models that no device computes.

#include <algorithm>
#include <array>
#include <string_view>

namespace kvarena::testing {

inline bool only_host_computes(std::string_view architecture) {
  constexpr std::array<std::string_view, 8> kFamilies = {"gemma3_text", "glm4",  "gpt_oss", "granite",
                                                         "llama4_text", "olmo2", "phi3",    "smollm3"};
  return std::ranges::find(kFamilies, architecture) != kFamilies.end();
}

}  // namespace kvarena::testing
