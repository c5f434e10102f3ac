#include <fmt/format.h>

#include <cmath>

#include "harness/core/error.h"
#include "metrics/algorithms/difflib.h"
#include "metrics/per_answer.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

using RatioFunction = double (*)(std::u32string_view, std::u32string_view);

std::string first_code_line(std::string_view prediction) {
  for (std::string& line : split_on(lstrip_any(prediction, "\n"), "\n")) {
    if (!contains(line, "`") && !contains(line, "#") && !contains(line, "//")) return std::move(line);
  }
  return {};
}

double code_sim(std::string_view prediction, std::string_view answer, RatioFunction ratio) {
  const std::string line = first_code_line(prediction);
  if (line == answer) return 1.0;
  if (line.empty() || answer.empty()) return 0.0;
  return std::nearbyint(100 * ratio(decode_utf8(line), decode_utf8(answer))) / 100;
}

RatioFunction backend_of(const nlohmann::json& extras) {
  const std::string backend = extras.value("backend", "difflib");
  if (backend == "difflib") return difflib_ratio;
  if (backend == "levenshtein") return indel_ratio;
  fail({.place = "metric \"code_sim\": extras.backend",
        .found = fmt::format("\"{}\"", backend),
        .expected = "\"difflib\" or \"levenshtein\"",
        .nearest = nearest_name(backend, {"difflib", "levenshtein"})});
}

double code_sim_of(std::string_view prediction, std::string_view answer, const nlohmann::json& extras) {
  return code_sim(prediction, answer, backend_of(extras));
}

MetricScore score_code_sim(const MetricInput& input) {
  MetricScore result = best_over_references<code_sim_of>(input);
  result.notes["backend"] = input.extras.value("backend", "difflib");
  return result;
}

nlohmann::json recompute(const nlohmann::json& row, const VectorContext& context) {
  nlohmann::json expected = recompute_per_answer<code_sim_of>(row, context);
  double best = 0;
  for (const auto& answer : row.at("answers")) {
    best = std::max(best, code_sim(row.at("prediction").get_ref<const std::string&>(),
                                   answer.get_ref<const std::string&>(), indel_ratio));
  }
  expected["expected_levenshtein_backend"] = best;
  return expected;
}

}  // namespace

KVARENA_METRIC(
    {.id = "code_sim",
     .title = "Code line similarity",
     .summary = "fuzzywuzzy's ratio, in whole hundredths, of the answer and the first line of the prediction "
                "without `, # or //; best over the answers. extras.backend: difflib (what the official "
                "requirements install, default) or levenshtein.",
     .source = "THUDM/LongBench @2e00731f LongBench/metrics.py code_sim_score; fuzzywuzzy 0.18.0",
     .score = score_code_sim,
     .vectors = {{"code_sim", recompute}}});

}  // namespace kvarena::metrics
