#include "metrics/text/longbench_v2.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "metrics/algorithms/regex.h"
#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

MetricScore score_longbench_v2(const MetricInput& input) {
  const auto answer = longbench_v2_answer(input.prediction);
  MetricScore score;
  score.notes["answer"] = answer ? std::string(1, *answer) : "none";
  score.values["empty_output"] = input.prediction.empty();  // the official table drops these rows; here they are wrong
  score.score = answer && std::find(input.references.begin(), input.references.end(), score.notes["answer"]) !=
                              input.references.end();
  return score;
}

nlohmann::json recompute_extract(const nlohmann::json& row, const VectorContext&) {
  const auto answer = longbench_v2_answer(row.at("prediction").get_ref<const std::string&>());
  return {{"expected", answer ? nlohmann::json(std::string(1, *answer)) : nlohmann::json()}};
}

nlohmann::json recompute_aggregate(const nlohmann::json& row, const VectorContext&) {
  std::vector<LongBenchV2Item> items;
  for (const auto& item : row.at("items")) {
    items.push_back(
        {item.at("judge").get<bool>(), item.at("difficulty").get<std::string>(), item.at("length").get<std::string>()});
  }
  return {{"expected", longbench_v2_table(items)}};
}

}  // namespace

std::optional<char> longbench_v2_answer(std::string_view prediction) {
  static const Regex kBracketed(R"(The correct answer is \(([A-D])\))");
  static const Regex kBare(R"(The correct answer is ([A-D]))");
  const std::string text = replace_all(prediction, "*", "");
  for (const Regex* pattern : {&kBracketed, &kBare}) {
    const RegexMatch match = pattern->search(text);
    if (!match.empty()) return match[1].front();
  }
  return std::nullopt;
}

std::map<std::string, double> longbench_v2_table(std::span<const LongBenchV2Item> items) {
  std::map<std::string, std::pair<int64_t, int64_t>> counts;  // right, all
  for (const LongBenchV2Item& item : items) {
    for (const std::string& group : {std::string("overall"), item.difficulty, item.length}) {
      counts[group].first += item.right;
      ++counts[group].second;
    }
  }
  std::map<std::string, double> table;
  for (const auto& [group, count] : counts) {
    table[group] = python_round(100 * static_cast<double>(count.first) / static_cast<double>(count.second), 1);
  }
  return table;
}

KVARENA_METRIC(
    {.id = "longbench_v2",
     .title = "LongBench v2 accuracy",
     .summary = "1 when the letter after \"The correct answer is\" is the reference. No letter is wrong; an empty "
                "output, which the official table drops, is wrong too and marked empty_output.",
     .source = "THUDM/LongBench @2e00731f pred.py, result.py",
     .score = score_longbench_v2,
     .vectors = {{"longbench_v2_extract", recompute_extract}, {"longbench_v2_aggregate", recompute_aggregate}}});

}  // namespace kvarena::metrics
