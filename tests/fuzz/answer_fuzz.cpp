#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "datasets/questions.h"
#include "harness/core/json_text.h"
#include "metrics/registry.h"
#include "tests/fuzz/fuzz.h"

namespace {

using nlohmann::json;

// Extras that the scorers below need beside the answer.
const json& extras() {
  static const json kExtras = json::parse(R"({
    "category": "parallel_multiple", "type": "Week", "number": 5, "prefix": "#*# Week 1", "questions": ["Eggs?", "Cups?"],
    "function": [{"name": "f.g", "parameters": {"type": "dict", "required": ["a"], "properties": {
      "a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "string"}}, "c": {"type": "dict"},
      "d": {"type": "float"}, "e": {"type": "tuple", "items": {"type": "integer"}}}}}],
    "ground_truth": [{"f.g": {"a": [1, ""], "b": [["x"], ""], "c": [{"k": [1]}, ""], "d": [2.5, ""], "e": [[1, 2], ""]}}],
    "golden_calls": [{"name": "f", "arguments": {"a": 1, "b": ["x", {"c": null}]}}],
    "functions": [{"name": "f", "parameters": {"type": "object", "required": ["a"], "properties": {
      "a": {"type": "integer"}, "b": {"type": "array"}}}}],
    "instruction_id_list": ["detectable_format:json_format", "detectable_format:title", "detectable_format:number_bullet_lists",
      "detectable_format:number_highlighted_sections", "combination:two_responses", "keywords:frequency",
      "length_constraints:number_paragraphs", "length_constraints:nth_paragraph_first_word", "length_constraints:number_words",
      "length_constraints:number_sentences", "change_case:capital_word_frequency", "language:response_language"],
    "kwargs": [{}, {}, {"num_bullets": 2}, {"num_highlights": 1}, {}, {"keyword": "a+", "frequency": 2, "relation": "less than"},
      {"num_paragraphs": 2}, {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "a"}, {"num_words": 3, "relation": "at least"},
      {"num_sentences": 2, "relation": "at least"}, {"capital_frequency": 1, "capital_relation": "at least"},
      {"language": "en"}]})");
  return kExtras;
}

void score(const char* metric, std::string_view answer, const std::vector<std::string>& references,
           const json& beside = extras()) {
  kvarena::fuzz::try_to([&] {
    const auto found =
        kvarena::metrics::score_sample(kvarena::metrics::find_metric(metric), {answer, references, beside});
    if (!(found.score >= 0 && found.score <= 1)) __builtin_trap();
    const auto parsed = found.values.find("parsed");
    if (parsed != found.values.end() && parsed->second == 0 && found.score != 0) __builtin_trap();
  });
}

constexpr std::array kInfiniteBench = {"passkey",          "number_string",       "kv_retrieval",    "code_run",
                                       "code_debug",       "longdialogue_qa_eng", "longbook_qa_eng", "longbook_qa_chn",
                                       "longbook_sum_eng", "longbook_choice_eng", "math_find",       "math_calc"};

}  // namespace

/// A model's answer, for every scorer that parses it and for who asked it for questions; behind a NUL an InfiniteBench
/// label.
KVARENA_FUZZ(answer, data) {
  const std::string_view text = kvarena::fuzz::text_of(data);
  const size_t end = std::min(text.find('\0'), text.size());
  const std::string answer(text.substr(0, end));
  for (const char* metric :
       {"bfcl_ast", "complexfuncbench", "completion_rate", "exact_call_accuracy", "git_diff_format", "gsm8k",
        "gsm8k_long", "ifeval", "json_validity", "judged_needle", "judged_quality", "longbench_v2"}) {
    score(metric, answer, {"7", R"({"name": "f", "arguments": {"a": 1}})"});
  }
  (void)kvarena::datasets::questions_in(answer);
  const std::string_view behind = text.substr(std::min(end + 1, text.size()));
  kvarena::require_shallow(behind, "label");  // as every reader of labels asks
  const json label = json::parse(behind, nullptr, /*allow_exceptions=*/false);
  for (const char* task : kInfiniteBench) {
    score("infinitebench", answer, {}, {{"task", task}, {"label", label.is_discarded() ? json{"A", "B"} : label}});
  }
}
