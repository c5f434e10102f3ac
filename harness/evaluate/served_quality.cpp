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

/// A server's answer, and what its counters did meanwhile.
struct Served {
  CompletionAnswer answer;
  ForeignSession session;
  json counters = json::object();
  double seconds = 0;
};

/// Totals as their growth, others as they are afterwards.
json counters_between(const std::map<std::string, double>& before, const std::map<std::string, double>& after) {
  json counters = json::object();
  for (const auto& [name, value] : after) {
    const auto old = before.find(name);
    counters[name] = name.ends_with("_total") && old != before.end() ? value - old->second : value;
  }
  return counters;
}

Served ask(const CompletionEndpoint& server, const Request& request, const std::string& form) {
  Served served;
  const CompletionQuery query = query_of(request, form);
  const auto begin = std::chrono::steady_clock::now();
  const auto before = server.cache_metrics();
  served.answer = server.complete(query);
  served.counters = counters_between(before, server.cache_metrics());
  served.session.tokens = answer_tokens(served.answer, request, query);
  served.session.finish = served.answer.stopped ? FinishReason::stop : FinishReason::length;
  served.session.resident_bytes = served.answer.resident_bytes.value_or(0);
  served.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return served;
}

/// The baseline's answer, and its steps where the server scores texts.
struct ServedReference {
  Reference answer;
  std::vector<NamedStep> steps;
};

std::vector<NamedStep> score(const CompletionEndpoint& server, const Request& request,
                             std::span<const int32_t> continuation) {
  if (!server.scores_texts() || continuation.empty()) return {};
  return server.score(query_of(request, "tokens"), continuation);
}

ServedReference reference_of(const Served& served, const CompletionEndpoint& server, const Request& request) {
  ServedReference reference;
  reference.answer.tokens = served.session.tokens;
  reference.answer.bytes = served.session.resident_bytes;
  reference.steps = score(server, request, served.session.tokens);
  return reference;
}

/// Adds the distance along the reference; says whether a digit differs.
bool add_topk(results::SampleResult& result, const std::vector<NamedStep>& full, const std::vector<NamedStep>& lossy) {
  if (full.empty()) return false;
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

SampleOutcome compare(const Served& served, const Request& request, const ServedReference& reference,
                      const std::vector<NamedStep>& steps, bool baseline) {
  SampleOutcome outcome = free_outcome(served.session, request, reference.answer);
  results::SampleResult& result = outcome.result;
  const bool far = add_topk(result, reference.steps, steps);
  add_departure(result, served.session.tokens, reference.answer);
  add_server_values(result, served.answer, request);
  const bool differs = far || served.session.tokens != reference.answer.tokens ||
                       served.session.resident_bytes != reference.answer.bytes;
  result.active = baseline || differs;
  result.activity_json = json{{"differs_from_baseline", differs}, {"server_metrics", served.counters}}.dump();
  result.wall_s = served.seconds;
  return outcome;
}

}  // namespace

std::string prompt_form(const std::string& prompts, const std::string& engine) {
  if (prompts != "auto") return prompts;
  return engine == "openai" ? "text" : "tokens";
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

std::vector<SampleOutcome> evaluate_quality_served(const CompletionEndpoint& baseline, const Request& request,
                                                   const std::string& form, std::span<const ServedSetting> settings) {
  const Served first = ask(baseline, request, form);
  const ServedReference reference = reference_of(first, baseline, request);
  std::vector<SampleOutcome> outcomes;
  for (const ServedSetting& setting : settings) {
    SampleOutcome& outcome = outcomes.emplace_back();
    const std::string failure = failure_of([&] {
      if (setting.baseline) {
        outcome = compare(first, request, reference, reference.steps, /*baseline=*/true);
        return;
      }
      const Served served = ask(*setting.server, request, form);
      const std::vector<NamedStep> steps =
          reference.steps.empty() ? std::vector<NamedStep>() : score(*setting.server, request, reference.answer.tokens);
      outcome = compare(served, request, reference, steps, /*baseline=*/false);
    });
    if (!failure.empty()) outcome = {.failure = failure};
  }
  return outcomes;
}

SampleOutcome evaluate_noise_floor_served(const CompletionEndpoint& baseline, const Request& request,
                                          const std::string& form) {
  const ServedReference reference = reference_of(ask(baseline, request, form), baseline, request);
  const Served again = ask(baseline, request, form);
  return compare(again, request, reference, score(baseline, request, reference.answer.tokens), /*baseline=*/true);
}

}  // namespace kvarena::evaluate
