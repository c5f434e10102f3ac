#include "harness/evaluate/completion_form.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>

namespace kvarena::evaluate {
namespace {

using nlohmann::json;

/// A word that no request had before.
std::string new_salt() {
  static std::atomic<int64_t> asked = 0;
  return fmt::format("{:x}-{}", std::chrono::system_clock::now().time_since_epoch().count(), ++asked);
}

}  // namespace

json member(const json& object, const char* name) { return object.is_object() ? object.value(name, json()) : json(); }

json first_choice(const json& reply) {
  const json choices = member(reply, "choices");
  return choices.is_array() && !choices.empty() ? choices.front() : json();
}

json completion_body(const CompletionQuery& query, const ServerSettings& settings) {
  const std::string& engine = settings.engine;
  json body = {
      {"model", settings.model}, {"max_tokens", query.max_tokens}, {"temperature", query.sampling.temperature}};
  if (!query.tokens.empty()) {
    body["prompt"] = query.tokens;
  } else if (query.messages.empty()) {
    body["prompt"] = query.text;
  } else {
    for (const auto& [role, content] : query.messages)
      body["messages"].push_back({{"role", role}, {"content", content}});
  }
  if (!query.sampling.greedy()) {
    body["top_p"] = query.sampling.top_p;
    body["seed"] = query.sampling.seed;
    if (engine == "llama.cpp") body.update({{"top_k", 0}, {"min_p", 0}});
  }
  std::vector<std::string> stop = query.stop;
  const bool takes_ids = engine == "vllm" || engine == "sglang";
  if (query.stop_token && takes_ids) body["stop_token_ids"] = {*query.stop_token};
  if (query.stop_token && !takes_ids) stop.push_back(query.stop_text);
  if (!stop.empty()) body["stop"] = stop;
  if (query.ignore_end) body["ignore_eos"] = true;
  if (engine == "vllm" || engine == "kvarena") body["return_token_ids"] = true;
  if (engine == "kvarena" && query.context_tokens > 0) body["context_tokens"] = query.context_tokens;
  if (engine == "llama.cpp") body["cache_prompt"] = !query.shares.empty();
  const bool salts = engine == "vllm" || engine == "sglang";
  if (salts && query.fresh) body["cache_salt"] = new_salt();
  if (salts && !query.shares.empty()) body["cache_salt"] = query.shares;
  return body;
}

}  // namespace kvarena::evaluate
