#pragma once
// Marks of a judge model for answers that a run left in the results database.

#include <string>

#include "harness/core/progress.h"
#include "harness/evaluate/chat_endpoint.h"
#include "harness/results/results_store.h"
#include "metrics/judge_prompt.h"
#include "metrics/registry.h"

namespace kvarena::evaluate {

/// The judge's words about an answer: asked again, as the official scripts do, until the metric can read them, and then
/// given up.
[[nodiscard]] std::string ask_judge(ChatEndpoint& judge, const metrics::MetricEntry& metric, const std::string& prompt);

/// The endpoint as a question wants it: with its system message, temperature and length of an answer.
[[nodiscard]] EndpointSettings with_question(EndpointSettings judge, const metrics::JudgeQuestion& question);

struct JudgingSummary {
  int64_t marked = 0;
  int64_t unread = 0;  // answers of which no words of the judge could be read: their marks are not defined
  EndpointUse use;
};

struct JudgingOptions {
  EndpointSettings judge;
  bool replace = false;  // takes another judge's marks away
};

/// Asks the judge about the answers of an experiment that lack its marks, and writes these one answer after the other,
/// so that a kill loses the answer in work alone. Throws UserError where the experiment holds another judge's marks,
/// and where the endpoint gives up.
JudgingSummary judge_answers(results::ResultsStore& results, const std::string& experiment,
                             const JudgingOptions& options, Progress& progress);

}  // namespace kvarena::evaluate
