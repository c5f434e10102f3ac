#include <algorithm>

#include "metrics/algorithms/regex.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

MetricScore score(const MetricInput& input) {
  static const Regex kAnswer(R"(The correct answer is (\w):)");
  const RegexMatch found = kAnswer.search(input.prediction);
  const std::string letter(found.empty() ? "" : found[1]);
  const bool right = std::ranges::find(input.references, letter) != input.references.end();
  return {right ? 1.0 : 0.0, {}, {{"answer", letter.empty() ? "none" : letter}}};
}

}  // namespace

KVARENA_METRIC({.id = "longhealth",
                .title = "LongHealth accuracy",
                .summary = "1 when the letter behind the first \"The correct answer is\" and before a colon is the "
                           "reference's.",
                .source = "TIO-IKIM/CLUE @2de4314 eval/eval_LongHealth.py",
                .score = score});

}  // namespace kvarena::metrics
