#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

MetricScore score_conversation(const MetricInput& input) {
  const json record = json::parse(input.prediction, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object() || !record.value("valid", json()).is_boolean()) {
    fail({.place = "metric \"bfcl_multi_turn\": prediction",
          .found = std::string(input.prediction.substr(0, 120)),
          .expected = R"({"valid": true or false, "error": ..., "result": ...}, the record of a conversation)"});
  }
  MetricScore score{.score = record["valid"] == true ? 1.0 : 0.0, .values = {}, .notes = {}};
  if (score.score == 0) score.notes["error"] = record.value("error", "");
  return score;
}

}  // namespace

KVARENA_METRIC(
    {.id = "bfcl_multi_turn",
     .title = "BFCL conversations with the right states",
     .kind = MetricKind::functional,
     .summary = "1 when BFCL's package found no fault with a conversation of several turns: after each turn "
                "its classes are in the state that the right calls lead to, and what these return was "
                "returned. Reads the verdict that the conversation ended with.",
     .source = "ShishirPatil/gorilla @6ea57973, bfcl_eval/eval_checker/multi_turn_eval/multi_turn_checker.py",
     .score = score_conversation});

}  // namespace kvarena::metrics
