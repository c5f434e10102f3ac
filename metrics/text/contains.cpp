#include <algorithm>

#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

MetricScore score(const MetricInput& input) {
  const auto occurs = [&](const std::string& reference) { return contains(input.prediction, reference); };
  return {std::ranges::any_of(input.references, occurs) ? 1.0 : 0.0, {}, {}};
}

}  // namespace

KVARENA_METRIC({.id = "contains",
                .title = "Answer occurs",
                .summary = "1 when any reference occurs in the prediction, letter by letter: NoLiMa's rule.",
                .source = "adobe-research/NoLiMa @7532e4e evaluation/async_evaluate.py",
                .score = score});

}  // namespace kvarena::metrics
