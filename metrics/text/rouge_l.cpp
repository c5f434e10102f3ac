#include "metrics/algorithms/rouge.h"
#include "metrics/per_answer.h"

namespace kvarena {
namespace {

// Steps of backtracking from which CPython's recursion limit of 1000 may have stopped the official code.
constexpr int64_t kRecursionSteps = 900;

MetricScore rouge_l(const MetricInput& input) {
  MetricScore best;
  for (const std::string& reference : input.references) {
    const RougeScore score = pltrdy_rouge_l(input.prediction, reference);
    if (score.f >= best.score) {
      best.score = score.f;
      best.values["precision"] = score.precision;
      best.values["recall"] = score.recall;
    }
    double& risk = best.values["official_recursion_risk"];
    if (score.backtrack_steps >= kRecursionSteps) risk = 1;
  }
  return best;
}

// A row marked recursion_limited holds the official 0 in `expected` and the value of the formula beside it.
nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const bool limited = row.value("recursion_limited", false);
  nlohmann::json per_answer = nlohmann::json::array();
  double official = 0;
  double formula = 0;
  for (const auto& answer : row.at("answers")) {
    const RougeScore score =
        pltrdy_rouge_l(row.at("prediction").get_ref<const std::string&>(), answer.get_ref<const std::string&>());
    const double kept = limited && score.backtrack_steps >= kRecursionSteps ? 0.0 : score.f;
    per_answer.push_back(kept);
    official = std::max(official, kept);
    formula = std::max(formula, score.f);
  }
  return {{"expected_per_answer", std::move(per_answer)},
          {"expected", official},
          {"expected_without_recursion_limit", formula}};
}

}  // namespace

KVARENA_METRIC({.id = "rouge_l",
                .title = "ROUGE-L (pltrdy)",
                .summary = "Summary-level ROUGE-L over sets of words, sentences cut at full stops, case kept, as the "
                           "Python package rouge 1.0.1 computes it; best over the answers. Where that package stops at "
                           "Python's recursion limit (and LongBench writes 0) this is the value of the formula; such "
                           "samples carry official_recursion_risk = 1.",
                .source = "pltrdy/rouge @c1b90a78 rouge_l_summary_level; THUDM/LongBench @2e00731f rouge_score",
                .score = rouge_l,
                .vectors = {{"rouge_l_pltrdy", recompute}, {"rouge_l", recompute}}});

}  // namespace kvarena
