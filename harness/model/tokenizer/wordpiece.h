#pragma once
// WordPiece: the longest token that begins a word, then the longest that continues it (Devlin et al. 2018, BERT).

#include <memory>
#include <string>
#include <utility>

#include "harness/model/tokenizer/token_model.h"
#include "harness/model/tokenizer/vocabulary.h"

namespace kvarena {

class WordPiece final : public TokenModel {
 public:
  /// `continuation` ("##") begins tokens that continue a word. Words of more than `max_characters`, and those that no
  /// tokens make up, become `unknown` as a whole.
  WordPiece(std::shared_ptr<const Vocabulary> vocabulary, std::string continuation, int32_t unknown,
            int64_t max_characters)
      : vocabulary_(std::move(vocabulary)),
        continuation_(std::move(continuation)),
        unknown_(unknown),
        max_characters_(max_characters) {}

  void encode(std::string_view word, std::vector<int32_t>& out) const override;

 private:
  [[nodiscard]] int32_t longest(std::string_view rest, bool continues, size_t& length) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::string continuation_;
  int32_t unknown_;
  int64_t max_characters_;
};

}  // namespace kvarena
