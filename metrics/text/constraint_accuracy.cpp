#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"
#include "metrics/algorithms/porter.h"
#include "metrics/registry.h"
#include "metrics/text/longgenbench.h"

namespace kvarena::metrics {
namespace {

constexpr size_t kShortWord = 3;  // bytes; "a", "my", "and" say nothing of an event

/// Stems of the words of a text, in lower case.
std::set<std::string> stems_of(std::string_view text) {
  std::set<std::string> stems;
  std::string word;
  for (size_t i = 0; i <= text.size(); ++i) {
    const auto byte = i < text.size() ? static_cast<unsigned char>(text[i]) : ' ';
    if (std::isalnum(byte) != 0 || byte >= 0x80) {
      word += static_cast<char>(std::tolower(byte));
    } else if (!word.empty()) {
      stems.insert(porter_stem(std::move(word)));
      word.clear();
    }
  }
  return stems;
}

/// Whether the entry holds more than half of the event's words, short ones aside when there are others.
bool names_event(const std::set<std::string>& entry, const std::string& event) {
  std::set<std::string> wanted = stems_of(event);
  const auto is_short = [](const std::string& word) { return word.size() <= kShortWord; };
  if (!std::ranges::all_of(wanted, is_short)) std::erase_if(wanted, is_short);
  const auto found = std::ranges::count_if(wanted, [&](const std::string& word) { return entry.contains(word); });
  return 2 * found > std::ssize(wanted);
}

MetricScore constraint_accuracy(const MetricInput& input) {
  if (!input.extras.contains("type")) {
    fail({.place = "metric \"constraint_accuracy\": extras.type",
          .found = "nothing",
          .expected = "the LongGenBench item's type (\"Week\")"});
  }
  const std::string text = input.extras.value("prefix", "") + std::string(input.prediction);
  const auto blocks = longgenbench_blocks(text, input.extras["type"].get<std::string>());
  int64_t checks = 0, asked = 0, met = 0;
  for (const char* kind : {"checks_once", "checks_range", "checks_periodic"}) {
    std::vector<std::pair<std::string, std::string>> wanted;
    const nlohmann::json events = input.extras.value(kind, nlohmann::json::object());
    for (const auto& [number, event] : events.items()) wanted.emplace_back(number, event.get<std::string>());
    checks += std::ssize(wanted);
    for (const CompletionQuestion& question : longgenbench_questions(blocks, wanted)) {
      ++asked;
      met += names_event(stems_of(blocks.at(question.number)), question.event) ? 1 : 0;
    }
  }
  const auto share = [met](int64_t of) { return of == 0 ? 0.0 : static_cast<double>(met) / static_cast<double>(of); };
  return {share(checks), {{"of_written_entries", share(asked)}}, {}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "constraint_accuracy",
     .title = "LongGenBench constraints met",
     .summary = "Share of the checks (once, range, periodic) whose entry is written and holds more than half of the "
                "event's words, by their stems. The official program asks a judge instead whether the entry includes "
                "the event; entries that are not written fail here, as in its share of all checks.",
     .source = "mozhu621/LongGenBench @62c0e869 Evalution/eval.py; the rule in the judge's place is kvarena's",
     .score = constraint_accuracy,
     .needs_references = false});

}  // namespace kvarena::metrics
