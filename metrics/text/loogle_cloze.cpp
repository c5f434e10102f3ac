#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/algorithms/python_calls.h"
#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

/// The dictionary that a prediction is in Python; null where it is none.
json dictionary_of(std::string_view prediction) {
  const auto calls = parse_python_calls(fmt::format("f(x=({}\n))", prediction));
  if (!calls || calls->size() != 1 || calls->front().arguments.size() != 1) return {};
  const PythonValue& value = calls->front().arguments.front().second;
  return value.type == PythonValue::Type::dict ? to_json(value) : json();
}

bool share_a_word(const json& answer, const std::string& wanted) {
  if (!answer.is_string()) return false;
  const auto words = split_white_space(answer.get_ref<const std::string&>());
  return std::ranges::any_of(split_white_space(wanted),
                             [&](const std::string& word) { return std::ranges::find(words, word) != words.end(); });
}

MetricScore score(const MetricInput& input) {
  const json wanted = json::parse(input.references.empty() ? "" : input.references.front(), nullptr, false);
  if (!wanted.is_object() || wanted.empty()) {
    fail({.place = "metric \"loogle_cloze\"",
          .found = "another reference",
          .expected = "one, the JSON text of an object with the entity of each mask"});
  }
  const json answer = dictionary_of(input.prediction);
  double exact = 0, partial = 0;
  for (const auto& [mask, entity] : wanted.items()) {
    const auto given = answer.find(mask);
    if (given == answer.end()) continue;
    exact += *given == entity;
    partial += share_a_word(*given, entity.get<std::string>());
  }
  const auto all = static_cast<double>(wanted.size());
  return {exact / all, {{"partial_match", partial / all}, {"masks", all}}, {}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "loogle_cloze",
     .title = "LooGLE, masked entities",
     .summary = "Share of a question's masks whose entity the answer, a dictionary in Python, has; partial_match: "
                "those that share a word with it. Means are over questions, where the official code weighs "
                "each by its masks.",
     .source = "bigai-nlco/LooGLE @6734382 Evaluation/automatic_metrics.py",
     .score = score});

}  // namespace kvarena::metrics
