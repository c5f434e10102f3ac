#include "harness/evaluate/served_quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/evaluate/against_reference.h"
#include "harness/evaluate/foreign_quality.h"
#include "harness/evaluate/stored_values.h"

namespace kvarena::evaluate {
namespace {

using experiment::SampleOutcome;
using metrics::NamedStep;
using nlohmann::json;

AskedServer ask(const CompletionEndpoint& server, const Request& request, const std::string& prompts) {
  AskedServer asked;
  const CompletionQuery query = query_of(request, prompt_form(prompts, server.settings().engine));
  const auto begin = std::chrono::steady_clock::now();
  const auto before = server.cache_metrics();
  asked.answer = server.complete(query);
  asked.counters_json = counters_between(before, server.cache_metrics()).dump();
  asked.session.tokens = answer_tokens(asked.answer, request, query);
  asked.session.finish = asked.answer.stopped ? FinishReason::stop : FinishReason::length;
  asked.session.resident_bytes = asked.answer.resident_bytes.value_or(0);
  asked.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return asked;
}

std::vector<NamedStep> score(const CompletionEndpoint& server, const Request& request,
                             std::span<const int32_t> continuation) {
  if (!server.scores_texts() || continuation.empty()) return {};
  return server.score(query_of(request, "tokens"), continuation);
}

/// Adds the distance along the reference; says whether a digit differs.
bool add_topk(results::SampleResult& result, const std::vector<NamedStep>& full, const std::vector<NamedStep>& lossy) {
  if (full.empty() || lossy.empty()) return false;
  KVARENA_ASSERT(full.size() == lossy.size(), "scores of two texts");
  std::vector<float> kl, lost;
  double kl_sum = 0, lost_sum = 0;
  int64_t agree = 0;
  bool differs = false;
  for (size_t i = 0; i < full.size(); ++i) {
    const metrics::TopkDivergence step = metrics::topk_divergence(full[i], lossy[i]);
    kl.push_back(static_cast<float>(step.kl_nats));
    lost.push_back(static_cast<float>(step.log_probability_lost));
    kl_sum += step.kl_nats;
    lost_sum += step.log_probability_lost;
    agree += step.top1_agrees;
    differs = differs || full[i].log_probability != lossy[i].log_probability || full[i].likeliest != lossy[i].likeliest;
  }
  const auto steps = static_cast<double>(full.size());
  add(result, metrics::kKlTopk, kl_sum / steps);
  add(result, metrics::kLogprobDifference, lost_sum / steps);
  add(result, metrics::kTop1Agreement, static_cast<double>(agree) / steps);
  add_series(result, metrics::kKlTopk, std::move(kl));
  add_series(result, metrics::kLogprobDifference, std::move(lost));
  return differs;
}

}  // namespace

std::string prompt_form(const std::string& prompts, const std::string& engine) {
  if (prompts != "auto") return prompts;
  return engine == "openai" ? "text" : "tokens";
}

json counters_between(const std::map<std::string, double>& before, const std::map<std::string, double>& after) {
  json counters = json::object();
  for (const auto& [name, value] : after) {
    const auto old = before.find(name);
    counters[name] = name.ends_with("_total") && old != before.end() ? value - old->second : value;
  }
  return counters;
}

CompletionQuery query_of(const Request& request, const std::string& form) {
  CompletionQuery query{.max_tokens = request.stop.max_new_tokens, .sampling = request.sampling};
  std::vector<int32_t> tokens = request.prompt;
  tokens.insert(tokens.end(), request.question.begin(), request.question.end());
  if (form == "tokens") {
    query.tokens = std::move(tokens);
    query.context_tokens = std::ssize(request.prompt);
  } else if (form == "text") {
    const bool whole = request.question.empty() && !request.layout.text.empty();
    query.text = whole ? request.layout.text : request.tokenizer->decode(tokens, {.skip_special = false});
  } else {
    if (!request.sample->answer_prefix.empty()) {
      fail({.found = fmt::format("an answer that begins with \"{}\"", request.sample->answer_prefix),
            .expected = "nothing behind the messages of a chat",
            .action = R"(give the model "prompts": "tokens" or "text")"});
    }
    for (const datasets::Message& message : request.sample->messages) {
      query.messages.emplace_back(message.role, message.content);
    }
  }
  // A stop string inside thinking would end the answer before it begins.
  if (request.thinking.open.empty() && request.stop.stop_when) query.stop = request.sample->generation.stop;
  const std::string& stop = request.sample->generation.stop_token_of;
  if (!stop.empty() && !request.stop.stop_tokens.empty()) {
    query.stop_token = request.stop.stop_tokens.back();
    query.stop_text = stop;
  }
  return query;
}

std::vector<int32_t> answer_tokens(const CompletionAnswer& answer, const Request& request,
                                   const CompletionQuery& query) {
  const auto sent = std::ssize(query.tokens);
  if (sent > 0 && answer.prompt_tokens && *answer.prompt_tokens != sent) {
    fail({.found = fmt::format("a server that read {} tokens of a prompt of {}", *answer.prompt_tokens, sent),
          .expected = "the prompt as it was sent"});
  }
  if (!answer.token_ids) {
    std::vector<int32_t> tokens = request.tokenizer->encode(answer.text, {.add_special = false});
    const bool one_more = answer.stopped && answer.answer_tokens == std::ssize(tokens) + 1;
    if (one_more && !request.stop.stop_tokens.empty()) tokens.push_back(request.stop.stop_tokens.front());
    return tokens;
  }
  for (const int32_t id : *answer.token_ids) {
    if (id >= 0 && id < request.tokenizer->vocab_size()) continue;
    fail({.found = fmt::format("the token {} in an answer", id),
          .expected = fmt::format("ids below {}, as this tokenizer has them", request.tokenizer->vocab_size()),
          .action = "give the model the path of the tokenizer that its server uses"});
  }
  return *answer.token_ids;
}

void add_server_values(results::SampleResult& result, const CompletionAnswer& answer, const Request& request) {
  add(result, metrics::kRepeatedRequests, static_cast<double>(answer.retries));
  add(result, metrics::kPrefixCachedTokens, static_cast<double>(answer.cached_tokens));
  if (!answer.prompt_tokens) return;
  add(result, metrics::kUsageDifference, static_cast<double>(*answer.prompt_tokens - request.asked_tokens()));
}

ServedReference ask_reference(const CompletionEndpoint& baseline, const Request& request, const std::string& prompts) {
  ServedReference reference{.asked = ask(baseline, request, prompts), .answer = {}, .steps = {}};
  reference.answer.tokens = reference.asked.session.tokens;
  reference.answer.bytes = reference.asked.session.resident_bytes;
  reference.steps = score(baseline, request, reference.answer.tokens);
  return reference;
}

SettingAnswer ask_setting(const ServedSetting& setting, const Request& request, const std::string& prompts,
                          const ServedReference& reference) {
  if (setting.baseline) return {.asked = reference.asked, .steps = reference.steps, .baseline = true, .failure = {}};
  SettingAnswer answer;
  answer.failure = failure_of([&] {
    answer.asked = ask(*setting.server, request, prompts);
    if (!reference.steps.empty()) answer.steps = score(*setting.server, request, reference.answer.tokens);
  });
  return answer;
}

SampleOutcome outcome_of(const SettingAnswer& answer, const Request& request, const ServedReference& reference) {
  if (!answer.failure.empty()) return {.failure = answer.failure};
  const ForeignSession& session = answer.asked.session;
  Reference full = reference.answer;
  if (session.resident_bytes == 0) full.bytes = 0;  // this server does not tell its bytes
  SampleOutcome outcome = free_outcome(session, request, full);
  results::SampleResult& result = outcome.result;
  const bool far = add_topk(result, reference.steps, answer.steps);
  add_departure(result, session.tokens, full);
  add_server_values(result, answer.asked.answer, request);
  const bool differs = far || session.tokens != full.tokens || session.resident_bytes != full.bytes;
  result.active = answer.baseline || differs;
  result.activity_json =
      json{{"differs_from_baseline", differs}, {"server_metrics", json::parse(answer.asked.counters_json)}}.dump();
  result.wall_s = answer.asked.seconds;
  return outcome;
}

SampleOutcome evaluate_noise_floor_served(const CompletionEndpoint& baseline, const Request& request,
                                          const std::string& prompts) {
  const ServedReference reference = ask_reference(baseline, request, prompts);
  SettingAnswer again = ask_setting({.server = &baseline, .baseline = false}, request, prompts, reference);
  if (!again.failure.empty()) throw UserError(again.failure);
  again.baseline = true;
  return outcome_of(again, request, reference);
}

}  // namespace kvarena::evaluate
