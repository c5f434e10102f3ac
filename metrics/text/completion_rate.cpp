#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/algorithms/regex.h"
#include "metrics/registry.h"
#include "metrics/text/longgenbench.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

using Checks = std::vector<std::pair<std::string, std::string>>;

// int() of digits of any script; numbers beyond 18 digits cannot be plan entries.
int64_t value_of(std::string_view digits) {
  int64_t value = 0;
  for (size_t i = 0; i < digits.size();) {
    const int digit = decimal_value(next_code_point(digits, i));
    if (value > 99'999'999'999'999'999) return -1;
    value = value * 10 + digit;
  }
  return value;
}

MetricScore completion_rate(const MetricInput& input) {
  for (const char* member : {"type", "number"}) {
    if (input.extras.contains(member)) continue;
    fail({.place = fmt::format("metric \"completion_rate\": extras.{}", member),
          .found = "nothing",
          .expected = "the LongGenBench item's type (\"Week\") and number (52)"});
  }
  const std::string text = input.extras.value("prefix", "") + std::string(input.prediction);
  const auto blocks = longgenbench_blocks(text, input.extras["type"].get<std::string>());
  return {longgenbench_completion_rate(blocks, input.extras["number"].get<int64_t>()) / 100,
          {{"blocks", static_cast<double>(blocks.size())}},
          {}};
}

Checks checks_in(const nlohmann::ordered_json& row, const char* name) {
  Checks checks;
  for (const auto& [number, event] : row.at(name).items()) checks.emplace_back(number, event.get<std::string>());
  return checks;
}

// The rows' stand-in for a judge: the event's first word occurs in the block.
std::string stand_in_answer(const std::string& block, const std::string& event) {
  const auto words = split_white_space(lower(event));
  return !words.empty() && contains(lower(block), words.front()) ? "yes" : "no";
}

nlohmann::json recompute(const nlohmann::json&, const VectorContext& context) {
  const auto row = nlohmann::ordered_json::parse(context.row_text);  // checks are asked in the order of the row
  const std::string text = row.at("prefix").get<std::string>() + row.at("generated_text").get<std::string>();
  const auto blocks = longgenbench_blocks(text, row.at("type").get<std::string>());
  nlohmann::json expected = {{"completion_rate", longgenbench_completion_rate(blocks, row.at("number").get<int64_t>())},
                             {"word_count", split_white_space(text).size()},
                             {"num_blocks", split_on(text, "#*#").size()},
                             {"parsed_identifiers", nlohmann::json::array()}};
  for (const auto& [number, block] : blocks) expected["parsed_identifiers"].push_back(number);
  int64_t checks_total = 0;
  int64_t results_total = 0;
  int64_t yes_total = 0;
  for (const std::string kind : {"once", "range", "periodic"}) {
    const Checks checks = checks_in(row, ("checks_" + kind).c_str());
    nlohmann::json evaluated = nlohmann::json::array();
    nlohmann::json results = nlohmann::json::object();
    for (const CompletionQuestion& question : longgenbench_questions(blocks, checks)) {
      const std::string answer = stand_in_answer(blocks.at(question.number), question.event);
      evaluated.push_back(question.number);
      results[std::to_string(question.number)] = answer;
      yes_total += longgenbench_yes(answer);
      ++results_total;
      if (kind == "periodic") expected["last_judge_prompt"] = question.prompt;
    }
    checks_total += static_cast<int64_t>(checks.size());
    expected["evaluated_" + kind] = std::move(evaluated);
    expected["results_" + kind] = std::move(results);
  }
  const auto share = [&](int64_t of) {
    return of == 0 ? nlohmann::json() : nlohmann::json(static_cast<double>(yes_total) / static_cast<double>(of));
  };
  expected["total_checks"] = checks_total;
  expected["total_results"] = results_total;
  expected["total_yes"] = yes_total;
  expected["yes_over_results"] = share(results_total);
  expected["yes_over_checks"] = share(checks_total);
  return {{"expected", std::move(expected)}};
}

}  // namespace

std::map<int64_t, std::string> longgenbench_blocks(std::string_view text, std::string_view type) {
  const std::string label = fmt::format("{} ", type);
  std::map<int64_t, std::string> blocks;
  for (const std::string& block : split_on(text, "#*#")) {
    for (size_t at = block.find(label); at != std::string::npos; at = block.find(label, at + 1)) {
      const std::string_view digits = first_digit_run(block, at + label.size());
      if (digits.data() != block.data() + at + label.size() || digits.empty()) continue;
      if (const int64_t number = value_of(digits); number >= 0) blocks.emplace(number, block);
      break;
    }
  }
  return blocks;
}

double longgenbench_completion_rate(const std::map<int64_t, std::string>& blocks, int64_t number) {
  const auto found = std::distance(blocks.lower_bound(1), blocks.upper_bound(number));
  return number <= 0 ? 0.0 : static_cast<double>(found) / static_cast<double>(number) * 100;
}

std::vector<CompletionQuestion> longgenbench_questions(const std::map<int64_t, std::string>& blocks,
                                                       std::span<const std::pair<std::string, std::string>> checks) {
  std::vector<CompletionQuestion> questions;
  for (const auto& [number_text, event] : checks) {
    if (number_text.empty() || first_digit_run(number_text) != number_text) {
      fail({.place = "LongGenBench check",
            .found = fmt::format("\"{}\"", number_text),
            .expected = "the number of an entry"});
    }
    const int64_t number = value_of(number_text);
    const auto block = blocks.find(number);
    if (block == blocks.end()) continue;
    questions.push_back({number, event,
                         fmt::format("Context: {}### Instruction: Does this context include the {}? Please answer with "
                                     "'yes' or 'no' only.",
                                     block->second, event)});
  }
  return questions;
}

bool longgenbench_yes(std::string_view judge_answer) { return contains(lower(judge_answer), "yes"); }

KVARENA_METRIC(
    {.id = "completion_rate",
     .title = "LongGenBench completion rate",
     .summary = "Share of the plan's numbered entries that the text reaches. Needs type, number and, where the "
                "prompt ended in it, prefix. The constraints are "
                "scored by constraint_accuracy.",
     .source = "mozhu621/LongGenBench @62c0e869 Evalution/eval.py",
     .score = completion_rate,
     .vectors = {{"longgenbench", recompute}}});

}  // namespace kvarena::metrics
