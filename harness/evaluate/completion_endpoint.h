#pragma once
// A server of completions: asked for answers, whole or streamed, and for log-probabilities of a given text.

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "harness/evaluate/http_client.h"
#include "harness/model/sampling.h"
#include "metrics/distribution/topk_divergence.h"

namespace kvarena::evaluate {

struct ServerSettings {
  std::string url;           // "http://127.0.0.1:8000", with or without "/v1"
  std::string engine;        // of ModelEntry::engine
  std::string model;         // as the server names it; empty = the only one that it has
  std::string key_variable;  // environment variable with its key; empty = none
  int64_t timeout_s = 600;   // of one try
  Patience patience;
  std::shared_ptr<RequestPace> pace;  // of requests that are not streamed; may be null
};

/// A prompt as tokens, where there are any, else as text, else as messages of (role, content).
struct CompletionQuery {
  std::vector<int32_t> tokens;
  std::string text;
  std::vector<std::pair<std::string, std::string>> messages;
  int64_t context_tokens = 0;  // first tokens, which the method compresses, of `kvarena serve`; 0 = all
  int64_t max_tokens = 0;      // of the answer
  std::vector<std::string> stop;
  std::optional<int32_t> stop_token;  // a token that ends an answer too
  std::string stop_text;              // the same where a server takes no tokens
  SamplingSettings sampling;
  bool ignore_end = false;
  bool fresh = false;  // without what the server keeps of other prompts, where it can be told
  std::string shares;  // not empty: with what it keeps of prompts that have the same word here, where it can be told
};

struct CompletionAnswer {
  std::string text;
  std::optional<std::vector<int32_t>> token_ids;  // where the server says them, with the one that ended the answer
  bool stopped = false;                           // by a stop string or an end of sequence, not by its length
  std::optional<int64_t> prompt_tokens;           // as the server counts them, as the others
  std::optional<int64_t> answer_tokens;
  int64_t cached_tokens = 0;
  std::optional<int64_t> resident_bytes;  // of the method's cache, of `kvarena serve`
  int64_t retries = 0;
  struct Arrival {
    double seconds = 0;  // since the request was begun
    int64_t tokens = 1;
  };
  std::vector<Arrival> arrivals;  // of a streamed answer
};

/// One model of one server. Any number of threads may ask at once.
class CompletionEndpoint {
 public:
  /// Throws UserError where the key is absent. Asks nothing yet.
  explicit CompletionEndpoint(ServerSettings settings);

  /// Whether anything answers there, and whether it is ready for requests. Tried once, within seconds.
  [[nodiscard]] bool answers() const;
  [[nodiscard]] bool healthy() const;

  /// Engine and version as the server tells it: "vllm 0.11.0". Throws UserError where the server has not the model.
  [[nodiscard]] const std::string& version();

  /// Throws UserError where there is no answer after all tries, where it is garbage, cut off, or of another model.
  [[nodiscard]] CompletionAnswer complete(const CompletionQuery& query) const;
  /// complete() as a stream, tried once.
  [[nodiscard]] CompletionAnswer stream(const CompletionQuery& query) const;

  /// Whether the engine gives log-probabilities of a given text.
  [[nodiscard]] bool scores_texts() const;
  /// Each step of `continuation` behind the query's tokens, with the likeliest tokens.
  [[nodiscard]] std::vector<metrics::NamedStep> score(CompletionQuery query,
                                                      std::span<const int32_t> continuation) const;

  /// A conversation as the server's own chat template has it: its text, its tokens, or how many there are; nothing
  /// where it does not tell.
  using Rendered = std::variant<std::monostate, std::string, std::vector<int32_t>, int64_t>;
  [[nodiscard]] Rendered render(const std::vector<std::pair<std::string, std::string>>& messages) const;

  /// Values of /metrics that tell of caches and preemptions, summed over labels; empty where there are none.
  [[nodiscard]] std::map<std::string, double> cache_metrics() const;

  [[nodiscard]] const ServerSettings& settings() const { return settings_; }

 private:
  [[nodiscard]] HttpRequest request(const std::string& path) const;
  [[nodiscard]] long status_of(const std::string& path) const;
  [[nodiscard]] std::string get(const std::string& path) const;
  [[nodiscard]] std::string choose_model() const;
  /// The reply to a POST, null where it is none.
  [[nodiscard]] nlohmann::json post(const std::string& path, const nlohmann::json& body) const;
  [[nodiscard]] std::vector<metrics::NamedStep> score_natively(const std::vector<int32_t>& tokens, size_t from) const;
  [[nodiscard]] std::vector<metrics::NamedStep> score_by_steps(std::vector<int32_t> tokens,
                                                               std::span<const int32_t> continuation) const;
  /// The parsed answer to a POST, after all tries. Throws UserError where it is none, or of another model.
  [[nodiscard]] nlohmann::json ask(const std::string& path, const nlohmann::json& body, int64_t& retries) const;
  void require_model(const std::string& body, const std::string& answered) const;

  ServerSettings settings_;
  std::string key_;
  std::string version_;
};

}  // namespace kvarena::evaluate
