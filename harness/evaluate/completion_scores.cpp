// Log-probabilities of a given text, as each engine tells them.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "harness/core/error.h"
#include "harness/evaluate/completion_form.h"

namespace kvarena::evaluate {
namespace {

using nlohmann::json;

constexpr int64_t kLikeliest = 20;  // tokens named for a step; servers refuse more
constexpr int64_t kWholeVocabulary = 1 << 20;

/// The name of tokens in lists of the likeliest ones, as vLLM writes it: texts of tokens may be alike.
std::string named(int64_t id) { return fmt::format("token_id:{}", id); }

[[noreturn]] void refuse_scores(const std::string& url, size_t token, const std::string& expected) {
  fail({.place = shown_url(url),
        .found = fmt::format("no log-probability of token {} of a given text", token),
        .expected = expected});
}

json entry_of(const json& list, size_t at) { return list.is_array() && at < list.size() ? list[at] : json(); }

/// Whether an entry is a log-probability and a token's id, as SGLang writes them.
bool is_scored(const json& entry) {
  return entry.is_array() && entry.size() >= 2 && entry[0].is_number() && entry[1].is_number_integer();
}

/// The steps that a list of log-probabilities in the form of completions has from token `from` on.
std::vector<metrics::NamedStep> steps_of(const json& reply, const std::string& url, size_t from, size_t count) {
  const json scores = member(first_choice(reply), "logprobs");
  const json names = member(scores, "tokens"), values = member(scores, "token_logprobs");
  const json tops = member(scores, "top_logprobs");
  std::vector<metrics::NamedStep> steps;
  for (size_t i = from; i < from + count; ++i) {
    const bool there = names.is_array() && values.is_array() && tops.is_array() && i < names.size() &&
                       i < values.size() && i < tops.size() && names[i].is_string() && values[i].is_number();
    if (!there) refuse_scores(url, i, "\"echo\" with \"logprobs\", as vLLM and `kvarena serve` have it");
    metrics::NamedStep& step = steps.emplace_back();
    step.token = names[i].get<std::string>();
    step.log_probability = values[i].get<double>();
    for (const auto& [token, value] : tops[i].items()) {
      if (value.is_number()) step.likeliest[token] = value.get<double>();
    }
  }
  return steps;
}

/// The likeliest tokens of an answer of one token in llama.cpp's own form, with the log-probability of `wanted`, minus
/// infinity where it is not among them. Nothing where it names none.
std::optional<metrics::NamedStep> native_step(const json& reply, int32_t wanted) {
  const json steps = member(reply, "completion_probabilities");
  const json tops = member(steps.is_array() && !steps.empty() ? steps.front() : json(), "top_logprobs");
  if (!tops.is_array() || tops.empty()) return std::nullopt;
  metrics::NamedStep step{
      .token = named(wanted), .log_probability = -std::numeric_limits<double>::infinity(), .likeliest = {}};
  for (const json& top : tops) {
    const json id = member(top, "id"), value = member(top, "logprob");
    if (!id.is_number_integer() || !value.is_number()) return std::nullopt;
    if (id == wanted) step.log_probability = value.get<double>();
    if (std::ssize(step.likeliest) < kLikeliest) step.likeliest[named(id.get<int64_t>())] = value.get<double>();
  }
  return step;
}

}  // namespace

bool CompletionEndpoint::scores_texts() const { return settings_.engine != "openai"; }

/// Steps of SGLang's server in its own form, whose lists name tokens by their ids: those of /v1/completions name texts,
/// which may be alike. The first token of a prompt has no entry.
std::vector<metrics::NamedStep> CompletionEndpoint::score_natively(const std::vector<int32_t>& tokens,
                                                                   size_t from) const {
  int64_t retries = 0;
  const json reply = ask("/generate",
                         {{"input_ids", tokens},
                          {"sampling_params", {{"max_new_tokens", 1}, {"temperature", 0}}},
                          {"return_logprob", true},
                          {"logprob_start_len", 0},
                          {"top_logprobs_num", kLikeliest}},
                         retries);
  const json told = member(reply, "meta_info");
  const json values = member(told, "input_token_logprobs"), tops = member(told, "input_top_logprobs");
  std::vector<metrics::NamedStep> steps;
  for (size_t i = from; i < tokens.size(); ++i) {
    const json own = entry_of(values, i), likeliest = entry_of(tops, i);
    const bool there = is_scored(own) && own[1] == tokens[i] && likeliest.is_array();
    if (!there) refuse_scores(settings_.url, i, "\"input_token_logprobs\", as SGLang has them");
    metrics::NamedStep& step = steps.emplace_back();
    step.token = named(tokens[i]);
    step.log_probability = own[0].get<double>();
    for (const json& top : likeliest) {
      if (is_scored(top)) step.likeliest[named(top[1].get<int64_t>())] = top[0].get<double>();
    }
  }
  return steps;
}

/// Steps of llama.cpp's server, which names the likeliest tokens behind a prompt but scores none: it is asked for one
/// token behind each beginning of the continuation, and keeps the prompt from one request to the next.
std::vector<metrics::NamedStep> CompletionEndpoint::score_by_steps(std::vector<int32_t> tokens,
                                                                   std::span<const int32_t> continuation) const {
  const auto step_at = [&](int32_t wanted, int64_t named_tokens) {
    int64_t retries = 0;
    const json reply = ask("/completion",
                           {{"prompt", tokens},
                            {"n_predict", 1},
                            {"n_probs", named_tokens},
                            {"temperature", 0},
                            {"cache_prompt", true},
                            {"model", settings_.model}},
                           retries);
    return native_step(reply, wanted);
  };
  std::vector<metrics::NamedStep> steps;
  for (const int32_t token : continuation) {
    auto step = step_at(token, kLikeliest);
    if (step && std::isinf(step->log_probability)) step = step_at(token, kWholeVocabulary);
    if (!step || std::isinf(step->log_probability)) {
      refuse_scores(settings_.url, tokens.size(), "\"completion_probabilities\", as llama.cpp's server has them");
    }
    steps.push_back(std::move(*step));
    tokens.push_back(token);
  }
  return steps;
}

std::vector<metrics::NamedStep> CompletionEndpoint::score(CompletionQuery query,
                                                          std::span<const int32_t> continuation) const {
  if (settings_.engine == "llama.cpp") return score_by_steps(std::move(query.tokens), continuation);
  const size_t from = query.tokens.size();
  query.tokens.insert(query.tokens.end(), continuation.begin(), continuation.end());
  if (settings_.engine == "sglang") return score_natively(query.tokens, from);
  query.max_tokens = 0;
  query.stop.clear();
  query.stop_token.reset();
  json body = completion_body(query, settings_);
  body.update({{"echo", true}, {"logprobs", kLikeliest}, {"return_tokens_as_token_ids", true}});  // texts may be alike
  int64_t retries = 0;
  return steps_of(ask("/v1/completions", body, retries), settings_.url, from, continuation.size());
}

}  // namespace kvarena::evaluate
