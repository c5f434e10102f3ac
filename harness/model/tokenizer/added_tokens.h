#pragma once
// Tokens that are found in the text before anything else looks at it: "<|im_start|>" and its like.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // left out by decode(skip_special)
  bool normalized = false;   // looked for after normalisation instead of before
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
};

/// A part of a text: an added token, or (token < 0) what lies between two of them.
struct TextPart {
  std::string_view text;
  int32_t token = -1;
};

/// Finds tokens of a set: leftmost first, of those starting together the longest (as Hugging Face `tokenizers`).
class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  /// Cuts `text` at the tokens in it. `special`: also at the special ones. Empty parts are left out.
  [[nodiscard]] std::vector<TextPart> split(std::string_view text, bool special) const;

  [[nodiscard]] bool empty() const { return tokens_.empty(); }

 private:
  [[nodiscard]] const AddedToken* match_at(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;  // sorted by content
  bool starts_[256] = {};           // bytes that some token begins with
};

}  // namespace kvarena
