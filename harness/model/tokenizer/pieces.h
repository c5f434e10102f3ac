#pragma once
// A text cut into pieces, and the steps that cut it.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena {

struct Piece {
  uint32_t begin;
  uint32_t end;
};

/// A stretch of text without added tokens. Steps cut the pieces further, drop some, or rewrite the text.
struct Pieces {
  std::string_view text;     // valid UTF-8; owned by the caller, or `rewritten`
  std::string rewritten;     // text that a step had to change
  std::vector<Piece> list;   // ordered, not overlapping, none empty
  std::vector<Piece> spare;  // room that steps use and swap with `list`
  bool at_start = true;      // `text` begins where the whole input begins

  [[nodiscard]] std::string_view operator[](Piece piece) const {
    return text.substr(piece.begin, piece.end - piece.begin);
  }
};

/// One step of cutting. Thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

using PreTokenizerPtr = std::unique_ptr<const PreTokenizer>;

}  // namespace kvarena
