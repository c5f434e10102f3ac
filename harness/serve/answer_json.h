#pragma once
// Answers as the API's JSON: whole, or in chunks of a stream.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/serve/choice.h"
#include "harness/serve/served_models.h"

namespace kvarena::serve {

/// Fields that all objects of one answer share.
struct AnswerHead {
  std::string id;
  std::string model;
  int64_t created = 0;  // seconds since 1970
  bool chat = false;
  bool tools = false;        // whose calls are found in a chat's text
  bool token_ids = false;    // shown beside the text
  bool named_by_id = false;  // CompletionRequest::named_by_id
};

/// Tokens of a request's choices, with "prompt_tokens_details" and, as "kvarena", bytes of the method's cache.
[[nodiscard]] nlohmann::json usage_json(std::span<const Choice> choices);
/// A whole answer; `pieces`: all of each choice.
[[nodiscard]] nlohmann::json answer_json(const AnswerHead& head, std::span<const Choice> choices,
                                         std::span<const Piece> pieces, const Tokenizer& tokenizer);
/// One chunk of a stream, the `first` of a chat with its role, the last one with the finish reason. Of a chat with
/// tools the text is whole.
[[nodiscard]] nlohmann::json chunk_json(const AnswerHead& head, const Choice& choice, const Piece& piece, bool first,
                                        const Tokenizer& tokenizer);
/// The chunk without choices that ends a stream whose usage was asked for.
[[nodiscard]] nlohmann::json usage_chunk_json(const AnswerHead& head, const Choice& choice);
/// GET /v1/models.
[[nodiscard]] nlohmann::json models_json(std::span<const ServedModel> models, int64_t created);
[[nodiscard]] nlohmann::json model_json(const ServedModel& model, int64_t created);

}  // namespace kvarena::serve
