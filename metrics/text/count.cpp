#include "metrics/algorithms/number_share.h"
#include "metrics/per_answer.h"

namespace kvarena::metrics {
namespace {

double count_of(std::string_view prediction, std::string_view answer, const nlohmann::json&) {
  return number_share(prediction, answer);
}

}  // namespace

KVARENA_METRIC({.id = "count",
                .title = "Passage count",
                .summary = "Share of the numbers in the prediction that are the answer, as strings.",
                .source = "THUDM/LongBench @2e00731f LongBench/metrics.py count_score",
                .score = best_over_references<count_of>,
                .vectors = {{"count", recompute_per_answer<count_of>}}});

}  // namespace kvarena::metrics
