#pragma once
// Attention to prompts in a way of the method's own.

#include "harness/method/method.h"

namespace kvarena {

/// Also a base of a method that attends to prompts as it attends while decoding: the prompt goes through the model
/// under its hooks, so many tokens at a time and the last one by itself, and compress() is not called. Its prefill is
/// its own: logits and hidden states are not those of full KV.
class PromptAttention {
 public:
  virtual ~PromptAttention() = default;
  /// Tokens in a pass of the prompt, at least 1.
  [[nodiscard]] virtual int64_t prompt_pass() const = 0;
};

/// Null for a method whose prompts get full attention.
[[nodiscard]] inline const PromptAttention* prompt_attention(const Method& method) {
  return dynamic_cast<const PromptAttention*>(&method);
}

}  // namespace kvarena
