#pragma once
// Quality of a server's settings: our prompts, its answers, our scorers.

#include <span>
#include <string>
#include <vector>

#include "harness/evaluate/against_reference.h"
#include "harness/evaluate/completion_endpoint.h"
#include "harness/evaluate/foreign_quality.h"
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

/// Values of CompletionEndpoint::cache_metrics(): totals as their growth, others as they are afterwards.
[[nodiscard]] nlohmann::json counters_between(const std::map<std::string, double>& before,
                                              const std::map<std::string, double>& after);

/// The request as the server is asked.
[[nodiscard]] CompletionQuery query_of(const Request& request, const std::string& form);

/// The tokens of an answer: those that the server says, else its text's. Throws UserError where the server counted
/// other tokens of a prompt that was sent as tokens.
[[nodiscard]] std::vector<int32_t> answer_tokens(const CompletionAnswer& answer, const Request& request,
                                                 const CompletionQuery& query);

/// Adds repeated_requests, prefix_cached_tokens and usage_difference_tokens.
void add_server_values(results::SampleResult& result, const CompletionAnswer& answer, const Request& request);

/// A server's answer, and what its counters did meanwhile.
struct AskedServer {
  CompletionAnswer answer;
  ForeignSession session;
  std::string counters_json = "{}";
  double seconds = 0;
};

/// The baseline's answer, and its steps where the server scores texts.
struct ServedReference {
  AskedServer asked;
  Reference answer;
  std::vector<metrics::NamedStep> steps;
};

/// An answer under a setting, and the steps of the reference there; or why there is none.
struct SettingAnswer {
  AskedServer asked;
  std::vector<metrics::NamedStep> steps;
  bool baseline = false;
  std::string failure;
};

/// Asks the baseline. `prompts` is ModelEntry::prompts.
[[nodiscard]] ServedReference ask_reference(const CompletionEndpoint& baseline, const Request& request,
                                            const std::string& prompts);
/// Asks under a setting, of which the baseline's own needs no asking.
[[nodiscard]] SettingAnswer ask_setting(const ServedSetting& setting, const Request& request,
                                        const std::string& prompts, const ServedReference& reference);

/// As evaluate_quality(), with the baseline's answer as the reference. Where both servers score texts, the reference is
/// scored under each setting: logprob_difference_nats, kl_topk_nats and their series, top1_agreement. A setting whose
/// answer and scores are the baseline's to the last digit did not act, as far as this sample tells.
[[nodiscard]] experiment::SampleOutcome outcome_of(const SettingAnswer& answer, const Request& request,
                                                   const ServedReference& reference);

/// The baseline's answer and scores beside a second time of both.
[[nodiscard]] experiment::SampleOutcome evaluate_noise_floor_served(const CompletionEndpoint& baseline,
                                                                    const Request& request, const std::string& prompts);

}  // namespace kvarena::evaluate
