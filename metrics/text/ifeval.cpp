#include "metrics/algorithms/ifeval.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/algorithms/english_sentences.h"
#include "metrics/algorithms/langdetect.h"
#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

// A response as it is, without its first, its last and both lines, and each of these without asterisks.
std::vector<std::string> loose_forms(std::string_view response) {
  const size_t first = response.find('\n'), last = response.rfind('\n');
  std::vector<std::string> forms = {std::string(response)};
  if (first != std::string_view::npos) {
    forms.emplace_back(strip(response.substr(first + 1)));
    forms.emplace_back(strip(response.substr(0, last)));
    if (first < last) forms.emplace_back(strip(response.substr(first + 1, last - first - 1)));
  }
  const size_t written = forms.size();
  for (size_t i = 0; i < written; ++i) forms.push_back(replace_all(forms[i], "*", ""));
  return forms;
}

bool follows(const std::string& id, const json& arguments, std::string_view response) {
  return !strip(response).empty() && follows_instruction(id, arguments, response);
}

const json& list_of(const json& extras, const char* name) {
  const auto list = extras.find(name);
  if (list == extras.end() || !list->is_array() || list->empty()) {
    fail({.place = fmt::format("extras.{}", name),
          .found = list == extras.end() ? "nothing" : list->dump().substr(0, 120),
          .expected = "the list of a row of IFEval's input_data.jsonl"});
  }
  return *list;
}

MetricScore ifeval(const MetricInput& input) {
  const json& ids = list_of(input.extras, "instruction_id_list");
  const json& arguments = list_of(input.extras, "kwargs");
  if (arguments.size() != ids.size()) {
    fail({.place = "extras.kwargs",
          .found = fmt::format("{} entries", arguments.size()),
          .expected = fmt::format("{}, one for each of instruction_id_list", ids.size())});
  }
  const std::vector<std::string> forms = loose_forms(input.prediction);
  size_t strict = 0, loose = 0;
  std::vector<std::string> missed;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!ids[i].is_string() || !arguments[i].is_object()) {
      fail({.place = fmt::format("extras.instruction_id_list[{}] and kwargs[{}]", i, i),
            .found = ids[i].dump() + ", " + arguments[i].dump().substr(0, 120),
            .expected = "a text and an object"});
    }
    const auto id = ids[i].get<std::string>();
    const auto holds = [&](const std::string& form) { return follows(id, arguments[i], form); };
    const bool as_is = holds(forms.front());
    if (!as_is) missed.push_back(id);
    strict += as_is ? 1 : 0;
    loose += as_is || std::ranges::any_of(forms, holds) ? 1 : 0;
  }
  const auto all = static_cast<double>(ids.size());
  return {.score = strict == ids.size() ? 1.0 : 0.0,
          .values = {{kInstructionsStrict.name, static_cast<double>(strict) / all},
                     {kPromptLoose.name, loose == ids.size() ? 1.0 : 0.0},
                     {kInstructionsLoose.name, static_cast<double>(loose) / all},
                     {kInstructions.name, all}},
          .notes = {{"not_followed", fmt::format("{}", fmt::join(missed, ", "))}}};
}

std::vector<std::filesystem::path> ifeval_data() {
  return {punkt_folder(), langdetect_folder() / "messages.properties", langdetect_folder() / "profiles"};
}

}  // namespace

KVARENA_METRIC(
    {.id = "ifeval",
     .title = "IFEval, prompts, strict",
     .summary = "1 when a response follows every instruction of its prompt (prompt_level_strict_acc of "
                "lm-evaluation-harness). Beside it ifeval_instruction_strict, the share of instructions followed, and "
                "the loose pair, for which a response may do without its first or last line or asterisks; reports "
                "weigh shares by the number of instructions. Languages are langdetect's with seed 0, where the "
                "official code sets none; a letter to count that is none of a to z (2 of 834 instructions) is counted, "
                "where the official code draws another one. Needs NLTK's and langdetect's data in $KVARENA_HOME.",
     .source =
         "google-research/instruction_following_eval evaluation_lib.py, instructions.py; NLTK 3.10; langdetect 1.0.9",
     .score = ifeval,
     .needs_references = false,
     .data = ifeval_data,
     .stored = {kInstructionsStrict, kPromptLoose, kInstructionsLoose, kInstructions}});

}  // namespace kvarena::metrics
