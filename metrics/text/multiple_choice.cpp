#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/algorithms/regex.h"
#include "metrics/registry.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

std::string plain(std::string_view text) {
  static const Regex kPunctuation(R"(\p{P})");
  return kPunctuation.sub(lower(text), [](const RegexMatch&) { return std::string(); });
}

/// Number of the option whose text is the last in `answer`; of two that begin at one place the first one counts, of
/// two equal ones the last. None where an option is empty, as the official pattern ends with its match.
size_t last_option_in(const std::string& answer, const std::vector<std::string>& options) {
  size_t found = options.size(), at = 0;
  if (std::ranges::find(options, "") != options.end()) return found;
  while (at < answer.size()) {
    size_t next = std::string::npos, which = 0;
    for (size_t i = 0; i < options.size(); ++i) {
      const size_t place = answer.find(options[i], at);
      if (place < next || (place == next && place != std::string::npos && options[i] == options[which])) {
        next = place;
        which = i;
      }
    }
    if (next == std::string::npos) break;
    found = which;
    at = next + options[which].size();
  }
  return found;
}

/// The letter that an answer chooses; empty where none is found.
std::string chosen(std::string_view prediction, const std::vector<std::string>& choices) {
  static const Regex kBracketed(R"(\(([A-Z])\))");
  const auto bracketed = kBracketed.find_all(prediction);
  if (!bracketed.empty()) return std::string(bracketed.back()[1]);
  std::vector<std::string> options;
  for (const std::string& choice : choices) options.push_back(plain(strip(choice)));
  const auto letter = [](size_t i) { return std::string(1, static_cast<char>('A' + i)); };
  const size_t option = last_option_in(plain(prediction), options);
  if (option < options.size()) return letter(option);
  const Regex behind_colon(fmt::format(R"(:\s*([A-{}]))", letter(choices.size() - 1)));
  const auto letters = behind_colon.find_all(prediction);
  return letters.empty() ? "" : std::string(letters.back()[1]);
}

MetricScore score(const MetricInput& input) {
  const auto choices = input.extras.find("choices");
  if (choices == input.extras.end() || !choices->is_array() || choices->empty()) {
    fail({.place = "metric \"multiple_choice\": extras.choices",
          .found = "nothing",
          .expected = "the texts of the options, the first of which is A"});
  }
  const std::string letter = chosen(input.prediction, choices->get<std::vector<std::string>>());
  const bool right = std::ranges::find(input.references, letter) != input.references.end();
  return {right ? 1.0 : 0.0, {}, {{"answer", letter.empty() ? "none" : letter}}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "multiple_choice",
     .title = "Multiple choice",
     .summary = "1 when the letter that the answer chooses is the reference's: the last one in brackets; else "
                "that of the last option whose text occurs, case and punctuation aside; else the last one "
                "behind a colon. Needs extras.choices.",
     .source = "EleutherAI/lm-evaluation-harness 0.4.9, filter multi_choice_regex of its GPQA tasks",
     .score = score});

}  // namespace kvarena::metrics
