#include <algorithm>

#include "metrics/registry.h"
#include "metrics/text/qa_f1.h"

namespace kvarena::metrics {
namespace {

// References are outputs under the full cache; articles count, because two runs of one model are compared word by word.
MetricScore output_f1(const MetricInput& input) {
  MetricScore best;
  for (const std::string& reference : input.references) {
    const auto f = bag_f1(normalized_words(input.prediction, {}), normalized_words(reference, {}));
    best.score = std::max(best.score, f.f);
    double& without_articles = best.values["f1_without_articles"];
    without_articles = std::max(without_articles, qa_f1(input.prediction, reference));
  }
  return best;
}

}  // namespace

KVARENA_METRIC(
    {.id = "output_f1",
     .title = "F1 to the full-cache output",
     .table_scale = 1,
     .summary = "Bag-of-words F1 of an output to the output of the full cache on the same prompt, lower-cased, "
                "ASCII punctuation deleted; the value with articles removed beside it.",
     .source = "VeriCache, Figure 3 (normalisation not published)",
     .score = output_f1,
     .against_full_cache = true});

}  // namespace kvarena::metrics
