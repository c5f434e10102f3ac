#pragma once
// Normalisation of a text before it is cut into pieces.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/model/tokenizer/unicode.h"

namespace kvarena {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Changes `text`, valid UTF-8, in place. Thread-safe.
  virtual void apply(std::string& text) const = 0;
  /// True when apply() would surely leave `text` as it is.
  [[nodiscard]] virtual bool keeps(std::string_view) const { return false; }
};

using NormalizerPtr = std::unique_ptr<const Normalizer>;

[[nodiscard]] NormalizerPtr make_unicode_normalizer(unicode::Form form);
[[nodiscard]] NormalizerPtr make_lowercase();
[[nodiscard]] NormalizerPtr make_strip_accents();
[[nodiscard]] NormalizerPtr make_strip(bool left, bool right);
/// Puts `prefix` before a text that is not empty.
[[nodiscard]] NormalizerPtr make_prepend(std::string prefix);
[[nodiscard]] NormalizerPtr make_replace(std::string from, std::string to);
[[nodiscard]] NormalizerPtr make_regex_replace(const std::string& pattern, std::string to, const std::string& place);

struct BertOptions {
  bool clean_text = true;            // drop control characters, every white space a plain space
  bool handle_chinese_chars = true;  // spaces around Han characters
  bool strip_accents = true;
  bool lowercase = true;
};
[[nodiscard]] NormalizerPtr make_bert_normalizer(BertOptions options);

[[nodiscard]] NormalizerPtr make_sequence(std::vector<NormalizerPtr> parts);

}  // namespace kvarena
