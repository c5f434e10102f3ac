#pragma once
// What data sets need of a tokenizer, and no more. The engine adapts its tokenizer to this.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::datasets {

/// Lengths of needle contexts and middle truncation are counted in the model's own tokens. Implementations are
/// immutable and may be called from several threads.
class TokenCounter {
 public:
  virtual ~TokenCounter() = default;

  /// Ids of `text` without special tokens.
  [[nodiscard]] virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// Text of `ids`; special tokens among them are skipped.
  [[nodiscard]] virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// How many special tokens (BOS) the tokenizer puts before a text when it is used with its defaults. Truncation
  /// counts them, as the official scripts do.
  [[nodiscard]] virtual int64_t leading_special_tokens() const { return 0; }
};

}  // namespace kvarena::datasets
