#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

MetricScore score_memory(const MetricInput& input) {
  const json record = json::parse(input.prediction, nullptr, /*allow_exceptions=*/false);
  const json questions = record.is_object() ? record.value("questions", json()) : json();
  if (!questions.is_array() || questions.empty()) {
    fail({.place = "metric \"bfcl_memory\": prediction",
          .found = std::string(input.prediction.substr(0, 120)),
          .expected = R"({"questions": [{"id": ..., "valid": true or false, "error": ...}, ...], "result": ...})"});
  }
  double right = 0;
  for (const json& question : questions) right += question.value("valid", false) ? 1 : 0;
  const auto asked = static_cast<double>(questions.size());
  return {.score = right / asked, .values = {{"right", right}, {"questions", asked}}, .notes = {}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "bfcl_memory",
     .title = "BFCL questions answered from memory",
     .kind = MetricKind::functional,
     .summary =
         "Share of a user's questions whose last answer without a call has an accepted text in it, as BFCL's "
         "package finds. Reads the verdicts that the conversations ended with. The leaderboard's accuracy is over "
         "the questions of all users: the sum of `right` by that of `questions`.",
     .source = "ShishirPatil/gorilla @6ea57973, bfcl_eval/eval_checker/agentic_eval/agentic_checker.py",
     .score = score_memory});

}  // namespace kvarena::metrics
