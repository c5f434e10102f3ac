#pragma once
// A language model behind an OpenAI-compatible endpoint, as the judge of answers. Never required: scores that need no
// judge stand beside the judged ones.

#include <cstdint>
#include <filesystem>
#include <string>

#include "harness/evaluate/http_client.h"

namespace kvarena::evaluate {

struct EndpointSettings {
  std::string url;     // up to the version: "http://127.0.0.1:8000/v1"
  std::string model;   // as the endpoint names it
  std::string key;     // sent as bearer token; never in a message, a log or the cache
  std::string system;  // message before every question; empty = none
  double temperature = 0.5;
  int64_t max_tokens = 1024;
  Patience patience;
  int64_t timeout_s = 120;      // of one try
  std::filesystem::path cache;  // folder of answers that were paid for; empty = none
  double price_in = 0;          // of a million prompt tokens, in whatever currency
  double price_out = 0;         // of a million answer tokens
};

/// Counts of requests to the endpoint, and their cost.
struct EndpointUse {
  int64_t answers = 0;  // given, from the endpoint or the cache
  int64_t cached = 0;   // of them
  int64_t retries = 0;  // tries that failed and were repeated
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;
  double cost = 0;  // of what was not cached

  EndpointUse& operator+=(const EndpointUse& other);
};

/// A client of one endpoint, for one thread.
class ChatEndpoint {
 public:
  /// Throws UserError when the address is empty or the key is none that a header can hold.
  explicit ChatEndpoint(EndpointSettings settings);

  /// The answer to `prompt` as the only user message, after the system's. `draw` tells repeated questions apart, so
  /// that the second draw is not answered with the first from the cache. Tries again when the connection fails, and on
  /// 408, 429 and 5xx; throws UserError with what the endpoint said when tries are used up, when it asks for a
  /// wait that is too long, and where repeating is of no use.
  [[nodiscard]] std::string ask(const std::string& prompt, int64_t draw = 0);

  [[nodiscard]] const EndpointUse& use() const { return use_; }

 private:
  EndpointSettings settings_;
  EndpointUse use_;
};

}  // namespace kvarena::evaluate
