#pragma once
// Reading of byte-pair vocabularies, shared by tokenizer.json and GGUF.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/model/tokenizer/bpe.h"
#include "harness/model/tokenizer/vocabulary.h"

namespace kvarena {

/// Sets token `id`, written in the byte alphabet. One that is not (a special token with other characters) is kept as
/// it is and cannot be found by bytes. Throws UserError naming `place` when `text` is not UTF-8.
void add_byte_level_token(Vocabulary& vocabulary, int32_t id, std::string_view text, const std::string& place);

/// Sets token `id`, written as plain text. Same errors.
void add_text_token(Vocabulary& vocabulary, int32_t id, std::string_view text, const std::string& place);

/// Collects merges in the order of their ranks. Throws UserError naming `place`, the merge's number and what is
/// missing in the vocabulary.
class MergeParser {
 public:
  /// `byte_level`: tokens are written in the byte alphabet.
  MergeParser(const Vocabulary& vocabulary, bool byte_level, std::string place)
      : vocabulary_(vocabulary), byte_level_(byte_level), place_(std::move(place)) {}

  void reserve(size_t merges) { merges_.reserve(merges); }
  void add(std::string_view left_and_right);  // with a space between them
  void add(std::string_view left, std::string_view right);
  [[nodiscard]] size_t size() const { return merges_.size(); }
  [[nodiscard]] std::vector<Bpe::Merge> take() { return std::move(merges_); }

 private:
  [[noreturn]] void fail_merge(std::string_view left, std::string_view right, std::string_view why) const;
  bool append(std::string_view token);

  const Vocabulary& vocabulary_;
  bool byte_level_;
  std::string place_;
  std::string joined_;  // left and right one behind the other: the token that they become
  std::vector<Bpe::Merge> merges_;
};

/// Merges of a SentencePiece vocabulary: every way to cut a token into two tokens, tokens of higher score first. Among
/// equal scores the lower id comes first, among one token's cuts the one with the lower left id.
[[nodiscard]] std::vector<Bpe::Merge> merges_from_scores(const Vocabulary& vocabulary, std::span<const float> scores);

}  // namespace kvarena
