#pragma once
// A tokenizer put together from its parts, in the order in which a text meets them:
// added tokens, normaliser, added tokens that are looked for after it, cutting steps, model, post-processor.

#include <memory>
#include <vector>

#include "harness/model/tokenizer/added_tokens.h"
#include "harness/model/tokenizer/decoder.h"
#include "harness/model/tokenizer/normalizer.h"
#include "harness/model/tokenizer/pieces.h"
#include "harness/model/tokenizer/token_model.h"
#include "harness/model/tokenizer/tokenizer.h"
#include "harness/model/tokenizer/vocabulary.h"

namespace kvarena {

struct TokenizerParts {
  /// Holds bytes when the decoder is byte-level, otherwise the tokens' text; empty for ids that only `added` knows.
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<AddedToken> added;
  NormalizerPtr normalizer;  // may be null
  std::vector<PreTokenizerPtr> pre_tokenizers;
  std::unique_ptr<const TokenModel> model;
  Decoder decoder;
  std::vector<int32_t> prefix;  // put before a whole prompt
  std::vector<int32_t> suffix;  // and behind it
  SpecialIds special;
};

[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts);

}  // namespace kvarena
