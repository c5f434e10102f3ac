#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "metrics/algorithms/regex.h"
#include "metrics/judge_prompt.h"
#include "metrics/registry.h"
#include "metrics/text/length_score.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

// float(mark): a number, or a string that holds one.
std::optional<double> number_of(const nlohmann::json& mark) {
  if (mark.is_number()) return mark.get<double>();
  if (!mark.is_string()) return std::nullopt;
  const std::string text(strip(mark.get_ref<const std::string&>()));
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' ? std::nullopt : std::optional(value);
}

JudgeMarks marks_of(const nlohmann::json& object) {
  JudgeMarks marks;
  for (const std::string_view dimension : kJudgeDimensions) {
    const auto found = object.find(std::string(dimension));
    if (found == object.end()) continue;
    if (const auto value = number_of(*found)) marks[std::string(dimension)] = *value;
  }
  return marks;
}

// The rubric's marks.
constexpr double kWorst = 1;
constexpr double kBest = 5;

/// Stored values of kJudgeDimensions, in their order: 0 for the worst mark, 1 for the best.
constexpr std::array<StoredMetric, 6> kRespects = {{{"judged_relevance", "Judged relevance"},
                                                    {"judged_accuracy", "Judged accuracy"},
                                                    {"judged_coherence", "Judged coherence"},
                                                    {"judged_clarity", "Judged clarity"},
                                                    {"judged_breadth_and_depth", "Judged breadth and depth"},
                                                    {"judged_reading_experience", "Judged reading experience"}}};

bool in_range(const JudgeMarks& marks) {
  return std::ranges::all_of(marks, [](const auto& mark) { return mark.second >= kWorst && mark.second <= kBest; });
}

// The prediction is the judge's output about a response, not the response.
MetricScore score(const MetricInput& input) {
  auto marks = parse_judge(input.prediction);
  if (marks && !in_range(*marks)) marks.reset();
  MetricScore result;
  result.values["parsed"] = marks.has_value();
  if (!marks) return result;
  const std::vector<JudgeMarks> rows = {*marks};
  result.score = std::clamp(longwriter_quality_score(rows).at("total") / 100, 0.0, 1.0);
  for (size_t i = 0; i < kRespects.size(); ++i) {
    result.values[kRespects[i].name] = (marks->at(std::string(kJudgeDimensions[i])) - kWorst) / (kBest - kWorst);
  }
  return result;
}

nlohmann::json recompute_parse(const nlohmann::json& row, const VectorContext&) {
  const auto marks = parse_judge(row.at("judge_output").get_ref<const std::string&>());
  return {{"expected", marks ? nlohmann::json(*marks) : nlohmann::json()}};
}

nlohmann::json recompute_score(const nlohmann::json& row, const VectorContext&) {
  std::vector<JudgeMarks> rows;
  for (const auto& object : row.at("judge_scores")) rows.push_back(marks_of(object));
  return {{"expected", longwriter_quality_score(rows)}};
}

}  // namespace

std::optional<JudgeMarks> parse_judge(std::string_view output) {
  static const Regex kBlock("```json\\n(.*?)\\n```", Regex::Dot::matches_all);
  if (contains(output, "```json")) {
    const RegexMatch match = kBlock.search(output);
    if (match.empty()) return std::nullopt;
    output = match[1];
  }
  const nlohmann::json value = nlohmann::json::parse(replace_all(output, "\n", ""), nullptr, false);
  if (!value.is_object()) return std::nullopt;
  JudgeMarks marks = marks_of(value);
  return marks.size() == kJudgeDimensions.size() ? std::optional(std::move(marks)) : std::nullopt;
}

std::map<std::string, double> longwriter_quality_score(std::span<const JudgeMarks> rows) {
  std::map<std::string, double> table;
  if (rows.empty()) return table;
  double total = 0;
  for (const std::string_view dimension : kJudgeDimensions) {
    double sum = 0;
    for (const JudgeMarks& marks : rows) {
      const auto found = marks.find(std::string(dimension));
      sum += found == marks.end() ? 3.0 : found->second;
    }
    const double value = (sum / static_cast<double>(rows.size()) - 1) * 25;
    table[std::string(dimension)] = value;
    total += value;
  }
  table["total"] = total / static_cast<double>(kJudgeDimensions.size());
  return table;
}

KVARENA_METRIC(
    {.id = "judged_quality",
     .title = "Judged quality S_q",
     .summary = "LongBench-Write: mean of six marks 1 to 5 from a judge's output, (mark - 1) / 4. The prediction "
                "is the judge's text; values.parsed is 0 where it holds no six marks of that range (such rows "
                "are left out, as in the official table). Name the judge beside the score.",
     .source = "THUDM/LongWriter @3fcfdff4 evaluation/eval_quality.py",
     .score = score,
     .needs_references = false,
     .judge = &kQualityQuestion,
     .stored = {kRespects.begin(), kRespects.end()},
     .vectors = {{"longwriter_judge_parse", recompute_parse}, {"longwriter_quality_score", recompute_score}}});

}  // namespace kvarena::metrics
