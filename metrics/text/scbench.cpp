#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/algorithms/bleu.h"
#include "metrics/algorithms/chinese_text.h"
#include "metrics/algorithms/code_functions.h"
#include "metrics/algorithms/regex.h"
#include "metrics/registry.h"
#include "metrics/text/infinitebench.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

constexpr double kSimilar = 0.8;  // BLEU from which a function counts as repeated

/// Items of a label as Python iterates over it: a list's texts, a text's characters.
std::vector<std::string> items_of(const json& label) {
  if (label.is_string()) return characters_of(label.get_ref<const std::string&>());
  std::vector<std::string> items;
  for (const json& item : label) {
    if (item.is_string()) items.push_back(item.get<std::string>());
  }
  return items;
}

/// The label itself, as it is written.
double value_occurs(std::string_view prediction, const json& label) {
  return label.is_string() && contains(prediction, label.get_ref<const std::string&>());
}

size_t items_that_occur(std::string_view prediction, const std::vector<std::string>& items) {
  const std::string text = lower(prediction);
  return static_cast<size_t>(
      std::ranges::count_if(items, [&](const std::string& item) { return contains(text, lower(item)); }));
}

double share_that_occurs(std::string_view prediction, const json& label) {
  const auto items = items_of(label);
  if (items.empty()) return 0;
  return python_round(static_cast<double>(items_that_occur(prediction, items)) / static_cast<double>(items.size()), 2);
}

/// The first number, without its decimals where the label has none.
double math_find(std::string_view prediction, const json& label) {
  static const Regex kNumber(R"([0-9]+\.[0-9]+|[0-9]+)");
  const json& wanted = label.is_array() && !label.empty() ? label[0] : label;
  const RegexMatch match = kNumber.search(prediction);
  if (match.empty() || !wanted.is_number()) return 0;
  const double found = std::strtod(std::string(match[0]).c_str(), nullptr);
  return (wanted.is_number_integer() ? std::trunc(found) : found) == wanted.get<double>();
}

/// Whether the answer's code is more like the function that was asked for than like any other of its repository, and
/// like enough.
double repoqa(std::string_view prediction, const json& extras) {
  const std::vector<std::string> code =
      split_white_space(code_of_answer(prediction, extras.at("language").get_ref<const std::string&>()));
  double best = 0;
  std::string name;
  for (const json& function : extras.at("functions")) {
    const double similarity =
        sentence_bleu(code, split_white_space(function.at("needle").get_ref<const std::string&>()));
    if (similarity > best) {
      best = similarity;
      name = function.at("name").get<std::string>();
    }
  }
  return best >= kSimilar && name == extras.at("name").get_ref<const std::string&>();
}

double score_task(const std::string& task, std::string_view prediction, const json& label, const json& extras) {
  if (task == "kv" || task == "prefix_suffix") return value_occurs(prediction, label);
  if (task == "qa_eng" || task == "many_shot") return items_that_occur(prediction, items_of(label)) > 0;
  if (task == "vt") return share_that_occurs(prediction, label);
  if (task == "mf") return math_find(prediction, label);
  if (task == "repoqa") return repoqa(prediction, extras);
  if (task == "choice_eng") return infinitebench_score("longbook_choice_eng", prediction, label);
  if (task == "qa_chn") return infinitebench_score("longbook_qa_chn", prediction, label);
  if (task == "summary") return infinitebench_score("longbook_sum_eng", prediction, label);
  if (task == "passkey") return infinitebench_score("passkey", prediction, label);
  fail({.place = "metric \"scbench\": extras.task",
        .found = fmt::format("\"{}\"", task),
        .expected = "the task of an SCBench turn, such as \"kv\""});
}

MetricScore score(const MetricInput& input) {
  for (const char* member : {"task", "label"}) {
    if (input.extras.contains(member)) continue;
    fail({.place = fmt::format("metric \"scbench\": extras.{}", member),
          .found = "nothing",
          .expected = "the task of the turn, and its answer as the files have it"});
  }
  return {score_task(input.extras["task"], input.prediction, input.extras["label"], input.extras), {}, {}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "scbench",
     .title = "SCBench official score",
     .summary =
         "The scorer of extras.task, which a turn has: the value occurs (kv, prefix_suffix), any answer (qa_eng), any "
         "of its characters (many_shot), the share of the variables (vt), InfiniteBench's (choice_eng, qa_chn, "
         "summary, passkey), the first number (mf), or whether the answer's function is at least 0.8 by BLEU like "
         "the one asked for, and not more like another of the repository (repoqa). Functions are found "
         "without tree-sitter's grammars: those that do not parse may end elsewhere.",
     .source = "microsoft/MInference @fb56c91 scbench/compute_scores.py, repo_qa_utils.py",
     .score = score});

}  // namespace kvarena::metrics
