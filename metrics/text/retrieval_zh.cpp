#include "metrics/algorithms/number_share.h"
#include "metrics/per_answer.h"

namespace kvarena::metrics {
namespace {

double retrieval_zh_of(std::string_view prediction, std::string_view answer, const nlohmann::json&) {
  return number_share(prediction, number_after(answer, "段落"));
}

}  // namespace

KVARENA_METRIC({.id = "retrieval_zh",
                .title = "Passage retrieval, Chinese",
                .summary = "As retrieval, for answers of the form 段落7.",
                .source = "THUDM/LongBench @2e00731f LongBench/metrics.py retrieval_zh_score",
                .score = best_over_references<retrieval_zh_of>,
                .vectors = {{"retrieval_zh", recompute_per_answer<retrieval_zh_of>}}});

}  // namespace kvarena::metrics
