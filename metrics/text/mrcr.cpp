#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/algorithms/difflib.h"
#include "metrics/registry.h"
#include "metrics/unicode/code_points.h"

namespace kvarena::metrics {
namespace {

std::string_view without_prefix(std::string_view text, std::string_view prefix) {
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return text;
}

MetricScore mrcr(const MetricInput& input) {
  if (!input.extras.contains("prefix") || !input.extras["prefix"].is_string()) {
    fail({.place = "metric \"mrcr\": extras.prefix",
          .found = "nothing",
          .expected = "the text that answers begin with"});
  }
  const auto prefix = input.extras["prefix"].get<std::string>();
  if (!input.prediction.starts_with(prefix)) return {0, {{"prefixed", 0}}, {}};
  double best = 0;
  for (const std::string& reference : input.references) {
    best = std::max(best, difflib_ratio(decode_utf8(without_prefix(input.prediction, prefix)),
                                        decode_utf8(without_prefix(reference, prefix))));
  }
  return {best, {{"prefixed", 1}}, {}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "mrcr",
     .title = "MRCR",
     .summary = "Similarity of the answer to the gold one by difflib's ratio, both without the text that they "
                "have to begin with (extras.prefix); 0 without it.",
     .source = "openai/mrcr README.md, grade()",
     .score = mrcr});

}  // namespace kvarena::metrics
