#pragma once
// Conversion of a token, as the vocabulary writes it, to the bytes it stands for.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvarena {

struct Decoder {
  enum class Kind {
    plain,          // tokens joined by spaces
    byte_level,     // the vocabulary holds bytes
    sentencepiece,  // replacements, "<0x41>" tokens, a leading space dropped
    wordpiece,      // "##" joins to what stands before it
  };
  Kind kind = Kind::plain;
  std::vector<std::pair<std::string, std::string>> replacements;  // sentencepiece
  bool byte_fallback = false;                                     // sentencepiece
  bool strip_first_space = false;                                 // sentencepiece
  std::string first_token_drops;                                  // sentencepiece: all of it, in the first token
  std::string continuation = "##";                                // wordpiece
  bool cleanup = false;                                           // wordpiece: no space before "." "," "n't" ...

  /// Bytes that `token` adds to a text; `first`: nothing stands before it.
  [[nodiscard]] std::string bytes_of(std::string_view token, bool first) const;
};

/// The byte that "<0x41>" stands for, or -1.
[[nodiscard]] int byte_of_token(std::string_view token);

}  // namespace kvarena
