#include <nlohmann/json.hpp>

#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

/// The text of the first fenced block, or the whole answer; without white space around it.
std::string_view json_part(std::string_view answer) {
  constexpr std::string_view kFence = "```";
  const size_t open = answer.find(kFence);
  if (open == std::string_view::npos) return strip(answer);
  const size_t line_end = answer.find('\n', open);
  const size_t close = line_end == std::string_view::npos ? line_end : answer.find(kFence, line_end);
  if (close == std::string_view::npos) return strip(answer);
  return strip(answer.substr(line_end + 1, close - line_end - 1));
}

MetricScore json_validity(const MetricInput& input) {
  const std::string_view text = json_part(input.prediction);
  // RFC 8259: duplicate names are allowed there; trailing commas, comments and NaN are not.
  const nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
  MetricScore score;
  score.score = value.is_discarded() ? 0 : 1;
  score.values = {{"fenced", text.size() != strip(input.prediction).size() ? 1.0 : 0.0}};
  score.notes = {{"type", value.is_discarded() ? "none" : value.type_name()}};
  return score;
}

}  // namespace

KVARENA_METRIC({.id = "json_validity",
                .title = "JSON validity",
                .kind = MetricKind::functional,
                .summary = "1 when the answer, or the first fenced block in it, is one JSON value and nothing else.",
                .source = "RFC 8259; the format checks of structured-output benchmarks",
                .score = json_validity,
                .needs_references = false});

}  // namespace kvarena::metrics
