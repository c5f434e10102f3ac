#include <charconv>
#include <optional>

#include "metrics/algorithms/regex.h"
#include "metrics/judge_prompt.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

constexpr double kBestMark = 10;

/// The mark in the first double brackets: "1" to "10" as LangChain's ScoreStringResultOutputParser takes it, or none.
std::optional<int> parse_mark(std::string_view output) {
  static const Regex kMark(R"(\[\[(.*?)\]\])");
  const RegexMatch match = kMark.search(output);
  if (match.empty()) return std::nullopt;
  const std::string_view mark = match[1];
  const bool known = mark == "10" || (mark.size() == 1 && mark[0] >= '1' && mark[0] <= '9');
  if (!known) return std::nullopt;
  int value = 0;
  std::from_chars(mark.data(), mark.data() + mark.size(), value);
  return value;
}

// The prediction is the judge's output about a response, not the response.
MetricScore score(const MetricInput& input) {
  const std::optional<int> mark = parse_mark(input.prediction);
  MetricScore result;
  result.values["parsed"] = mark.has_value();
  if (!mark) return result;
  result.values["mark"] = *mark;
  result.score = *mark / kBestMark;
  return result;
}

}  // namespace

KVARENA_METRIC(
    {.id = "judged_needle",
     .title = "Judged needle",
     .table_scale = kBestMark,
     .summary = "Needle in a haystack by a judge's rubric: 1 unrelated, 3 minor relevance, 5 inaccurate, 7 minor "
                "omissions, 10 accurate; stored as mark / 10. The prediction is the judge's text; values.parsed is 0 "
                "where it holds no [[mark]] (the official program stops there). Name the judge beside the score; "
                "`needle` needs none.",
     .source = "gkamradt/LLMTest_NeedleInAHaystack @186553d1 needlehaystack/evaluators/openai.py; LangChain's "
               "labeled_score_string",
     .score = score,
     .needs_references = false,
     .judge = &kNeedleQuestion});

}  // namespace kvarena::metrics
