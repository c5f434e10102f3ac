#pragma once
// Quality of a server's settings: our prompts, its answers, our scorers.

#include <span>
#include <string>
#include <vector>

#include "harness/evaluate/completion_endpoint.h"
#include "harness/evaluate/request.h"
#include "harness/experiment/evaluator.h"

namespace kvarena::evaluate {

/// A server under one setting.
struct ServedSetting {
  const CompletionEndpoint* server = nullptr;
  bool baseline = false;
};

/// The form in which ModelEntry::prompts says that prompts are sent to the engine.
[[nodiscard]] std::string prompt_form(const std::string& prompts, const std::string& engine);

/// The request as the server is asked.
[[nodiscard]] CompletionQuery query_of(const Request& request, const std::string& form);

/// The tokens of an answer: those that the server says, else its text's. Throws UserError where the server counted
/// other tokens of a prompt that was sent as tokens.
[[nodiscard]] std::vector<int32_t> answer_tokens(const CompletionAnswer& answer, const Request& request,
                                                 const CompletionQuery& query);

/// Adds repeated_requests, prefix_cached_tokens and usage_difference_tokens.
void add_server_values(results::SampleResult& result, const CompletionAnswer& answer, const Request& request);

/// As evaluate_quality(), with the answer of the `baseline` server as the reference. Where the server scores texts, the
/// reference is scored under each setting: logprob_difference_nats, kl_topk_nats and their series, top1_agreement. A
/// setting whose answer and scores are the baseline's to the last digit did not act, as far as this sample tells.
[[nodiscard]] std::vector<experiment::SampleOutcome> evaluate_quality_served(const CompletionEndpoint& baseline,
                                                                             const Request& request,
                                                                             const std::string& form,
                                                                             std::span<const ServedSetting> settings);

/// The baseline's answer and scores beside a second time of both.
[[nodiscard]] experiment::SampleOutcome evaluate_noise_floor_served(const CompletionEndpoint& baseline,
                                                                    const Request& request, const std::string& form);

}  // namespace kvarena::evaluate
