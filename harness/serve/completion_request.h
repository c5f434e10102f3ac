#pragma once
// Bodies of POST /v1/completions and /v1/chat/completions.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "harness/model/jinja/value.h"
#include "harness/model/sampling.h"

namespace kvarena::serve {

/// A prompt as it was sent: text or token ids.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

/// Messages and tools for the model's chat template.
struct Conversation {
  jinja::Value messages;
  std::optional<jinja::Value> tools;
};

struct CompletionRequest {
  std::string model;
  std::vector<Prompt> prompts;               // of a completion
  std::optional<Conversation> conversation;  // of a chat
  std::optional<int64_t> max_tokens;
  SamplingSettings sampling;
  std::vector<std::string> stop;
  std::optional<int64_t> logprobs;  // how many likeliest tokens beside each one
  bool echo = false;
  bool token_ids = false;    // those of the answer beside its text
  bool named_by_id = false;  // tokens in lists of log-probabilities are "token_id:7" instead of their text
  bool stream = false;
  bool stream_usage = false;
  bool ignore_end = false;  // go on past the model's end of sequence
  /// First tokens of the prompt that the method compresses; the others reach it afterwards. Absent: all of them, of a
  /// prompt that is scored the first half.
  std::optional<int64_t> context_tokens;
};

/// Reads the body of a completion. Throws ApiError (400) naming the field, what was found and what is expected; fields
/// that would change the answer and that nothing here obeys are refused too.
[[nodiscard]] CompletionRequest parse_completion(const std::string& body);
/// Reads the body of a chat.
[[nodiscard]] CompletionRequest parse_chat(const std::string& body);

}  // namespace kvarena::serve
