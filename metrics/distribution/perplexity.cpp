#include "metrics/distribution/perplexity.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {
namespace {

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const auto nll = row.at("token_nll").get<std::vector<double>>();
  const Perplexity result = perplexity(nll, row.at("num_words").get<int64_t>());
  return {{"expected",
           {{"token_perplexity", result.token_perplexity},
            {"word_perplexity", result.word_perplexity},
            {"total_nll", result.total_nll}}}};
}

}  // namespace

Perplexity perplexity(std::span<const double> token_nll, int64_t words) {
  const double total = std::accumulate(token_nll.begin(), token_nll.end(), 0.0);
  const auto per = [&](double count) {
    return count == 0 ? std::numeric_limits<double>::quiet_NaN() : std::exp(total / count);
  };
  return {total, per(static_cast<double>(token_nll.size())), per(static_cast<double>(words))};
}

KVARENA_METRIC({.id = kPerplexity.name,
                .title = kPerplexity.title,
                .kind = MetricKind::distribution,
                .unit = kPerplexity.unit,
                .table_scale = kPerplexity.table_scale,
                .better = kPerplexity.better,
                .summary = "exp of the mean negative log-likelihood per token; per word (the official PG-19 figure) "
                           "beside it.",
                .source = "deepmind/pg19; token-level form of the KV-cache papers",
                .stored = {kPerplexityWord},
                .vectors = {{"perplexity", recompute}}});

}  // namespace kvarena::metrics
