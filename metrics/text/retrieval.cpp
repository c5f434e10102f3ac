#include "metrics/algorithms/number_share.h"
#include "metrics/per_answer.h"

namespace kvarena::metrics {
namespace {

double retrieval_of(std::string_view prediction, std::string_view answer, const nlohmann::json&) {
  return number_share(prediction, number_after(answer, "Paragraph "));
}

}  // namespace

KVARENA_METRIC({.id = "retrieval",
                .title = "Passage retrieval",
                .summary = "Share of the numbers in the prediction that are the paragraph's number, as strings.",
                .source = "THUDM/LongBench @2e00731f LongBench/metrics.py retrieval_score",
                .score = best_over_references<retrieval_of>,
                .vectors = {{"retrieval", recompute_per_answer<retrieval_of>}}});

}  // namespace kvarena::metrics
