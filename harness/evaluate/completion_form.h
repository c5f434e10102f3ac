#pragma once
// Requests and answers of completions as JSON.

#include <nlohmann/json.hpp>
#include <string>

#include "harness/evaluate/completion_endpoint.h"

namespace kvarena::evaluate {

/// Words for messages about what should have come.
inline constexpr const char* kAnswer = "a completion of an OpenAI-compatible server";

/// The member of an object, null where it has none or is none.
[[nodiscard]] nlohmann::json member(const nlohmann::json& object, const char* name);
/// The first choice of an answer, null where there is none.
[[nodiscard]] nlohmann::json first_choice(const nlohmann::json& reply);

/// The body of a request for a completion, or for a chat where the query has messages.
[[nodiscard]] nlohmann::json completion_body(const CompletionQuery& query, const ServerSettings& settings);

}  // namespace kvarena::evaluate
