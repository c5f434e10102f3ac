#pragma once
// The tokens that logits rank first.

#include <cstdint>
#include <span>
#include <vector>

namespace kvarena {

/// At most `count` tokens by falling logit, of equal ones the smaller id first.
[[nodiscard]] std::vector<int32_t> likeliest(std::span<const float> logits, int64_t count);

}  // namespace kvarena
