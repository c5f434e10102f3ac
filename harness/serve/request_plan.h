#pragma once
// A parsed request as what the engine runs.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/serve/completion_request.h"
#include "harness/serve/live_engine.h"
#include "harness/serve/served_models.h"

namespace kvarena::serve {

/// One prompt of a request. The engine is given what the method compresses; the rest of a prompt that is scored is
/// forced, of others a question behind it.
struct PlannedPrompt {
  std::vector<int32_t> tokens;
  std::string text;        // as it was sent, or of ids what they spell
  int64_t context = 0;     // first tokens, which the method compresses
  int64_t max_tokens = 0;  // of the answer
};

struct RequestLimits {
  int64_t max_tokens = 1024;  // of an answer: the most, and what a chat gets that asks for nothing
};

/// Prompts as tokens, with answers' lengths. Throws ApiError (400) for what the model cannot take.
[[nodiscard]] std::vector<PlannedPrompt> plan_prompts(const CompletionRequest& request, const ServedModel& model,
                                                      const ModelText& text, const RequestLimits& limits);

/// The engine's request of a planned prompt.
[[nodiscard]] LiveRequest live_request(const CompletionRequest& request, const PlannedPrompt& prompt,
                                       const ServedModel& model, const ModelText& text);

}  // namespace kvarena::serve
