#include "metrics/algorithms/rouge.h"
#include "metrics/per_answer.h"

namespace kvarena::metrics {
namespace {

double rouge_2_of(std::string_view prediction, std::string_view answer, const nlohmann::json&) {
  return pltrdy_rouge_n(prediction, answer, 2).f;
}

}  // namespace

KVARENA_METRIC({.id = "rouge_2",
                .title = "ROUGE-2 (pltrdy)",
                .summary = "F over the sets of 2-grams of words of the whole text, as the Python package rouge 1.0.1 "
                           "computes it; best over the answers.",
                .source = "pltrdy/rouge @c1b90a78 rouge_n",
                .score = best_over_references<rouge_2_of>,
                .vectors = {{"rouge_2_pltrdy", recompute_per_answer<rouge_2_of>}}});

}  // namespace kvarena::metrics
