#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "harness/core/error.h"
#include "metrics/algorithms/regex.h"
#include "metrics/registry.h"
#include "metrics/text/qa_f1.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

/// Row F1 or exact accuracy, the part that is right, and whether there was an answer, as the official scorers find
/// them.
struct Verdict {
  double score = 0;
  double partial = 0;
  bool extracted = false;
};

double share(double part, size_t whole) { return part / static_cast<double>(whole); }

/// Text between the first opening and the first closing tag, stripped; nothing where one of them is missing.
std::optional<std::string_view> tagged(std::string_view text, const std::string& tag) {
  const size_t open = text.find(fmt::format("<{}>", tag)), close = text.find(fmt::format("</{}>", tag));
  if (open == std::string_view::npos || close == std::string_view::npos) return std::nullopt;
  const size_t begin = open + tag.size() + 2;
  return close < begin ? "" : strip(text.substr(begin, close - begin));
}

std::string joined_words(std::string_view text, std::string_view between) {
  std::string joined;
  for (const std::string& word : normalized_words(text)) {
    if (!joined.empty()) joined += between;
    joined += word;
  }
  return joined;
}

using Cells = std::vector<std::string>;

/// csv.reader(text.split("\n"), delimiter="\t"): a cell in quotes goes on over lines, whose ends it loses. Nothing
/// where the reader raises, at text behind a carriage return.
std::optional<std::vector<Cells>> read_tsv(std::string_view text) {
  enum class In { row_start, cell_start, cell, quotes, closing_quote, row_end } in = In::row_start;
  std::vector<Cells> rows;
  std::string cell;
  const auto end_cell = [&](In next) {
    rows.back().push_back(std::exchange(cell, ""));
    in = next;
  };
  for (const std::string& line : split_on(text, "\n")) {
    if (in != In::quotes) {
      rows.emplace_back();
      in = In::row_start;
    }
    for (const char c : line) {
      if (in == In::row_end) {
        if (c != '\r') return std::nullopt;
      } else if (in == In::quotes) {
        if (c == '"')
          in = In::closing_quote;
        else
          cell += c;
      } else if (c == '"' && in != In::cell) {
        if (in == In::closing_quote) cell += c;
        in = In::quotes;
      } else if (c == '\t') {
        end_cell(In::cell_start);
      } else if (c == '\r') {
        if (in != In::row_start) end_cell(In::row_end);
        in = In::row_end;
      } else {
        cell += c;
        in = In::cell;
      }
    }
    if (in != In::quotes && in != In::row_start && in != In::row_end) end_cell(In::row_end);
  }
  if (in == In::quotes) end_cell(In::row_end);
  return rows;
}

/// Normalised rows below the header, of as many cells: a last row of another length is dropped, the others are not
/// available. Nothing for a text without rows, and for a header that names two columns alike.
std::optional<std::vector<Cells>> table_of(std::string_view text) {
  auto rows = read_tsv(strip(text));
  if (!rows || rows->size() < 2) return std::nullopt;
  const Cells header = rows->front();
  if (std::set<std::string>(header.begin(), header.end()).size() < header.size()) return std::nullopt;
  rows->erase(rows->begin());
  if (rows->back().size() != header.size()) rows->pop_back();
  if (rows->empty()) return std::nullopt;
  for (Cells& row : *rows) {
    if (row.size() != header.size()) row.assign(header.size(), "N/A");
    for (std::string& cell : row) cell = joined_words(cell, "");
  }
  return rows;
}

/// Share of the rows that are among `others`.
double found_among(const std::vector<Cells>& rows, const std::vector<Cells>& others) {
  const std::set<Cells> known(others.begin(), others.end());
  return share(static_cast<double>(std::ranges::count_if(rows, [&](const Cells& row) { return known.contains(row); })),
               rows.size());
}

Verdict html_to_tsv(std::string_view prediction, const std::string& reference, const json& /*item*/) {
  constexpr std::string_view kFence = "```", kOpen = "```tsv";
  if (const size_t open = prediction.find(kOpen); open != std::string_view::npos) {
    prediction.remove_prefix(open + kOpen.size());
    prediction = prediction.substr(0, prediction.rfind(kFence));
  }
  const auto said = table_of(prediction), wanted = table_of(reference);
  if (!said || !wanted || said->front().size() != wanted->front().size()) return {};
  const double precision = found_among(*said, *wanted), recall = found_among(*wanted, *said);
  const double f1 = precision + recall == 0 ? 0 : 2 * recall * precision / (recall + precision);
  return {f1, f1, true};
}

Verdict path_traversal(std::string_view prediction, const std::string& reference, const json& /*item*/) {
  const auto route = tagged(prediction, "Route");
  if (!route) return {};
  if (*route == strip(reference)) return {1, 1, true};
  const Cells said = split_on(*route, "\n"), wanted = split_on(strip(reference), "\n");
  const size_t both = std::min(said.size(), wanted.size());
  size_t last = 0;  // line compared last; a wrong one counts too
  while (last + 1 < both && said[last] == wanted[last]) ++last;
  return {0, share(static_cast<double>(last + 1), wanted.size()), true};
}

/// Lines that begin with "-", without words that vary.
Cells beliefs(std::string_view text) {
  static const Regex kLineEnd(R"(\r\n|[\r\x0b\x0c\x1c-\x1e\x{85}\x{2028}\x{2029}])");
  constexpr std::string_view kBlanked[] = {"a",    "an",     "the",      "on",       "in",      "at",
                                           "step", "thinks", "think",    "believes", "believe", "is",
                                           "are",  "of",     "location", "know",     "knows",   "belief"};
  Cells found;
  bool first = true;
  for (const std::string& line : split_on(kLineEnd.sub(text, [](const RegexMatch&) { return "\n"; }), "\n")) {
    if (!strip(line).starts_with('-')) continue;
    const std::string_view said = std::exchange(first, false) ? lstrip(line) : std::string_view(line);
    if (!said.starts_with('-')) continue;
    std::string words;
    for (const std::string& word : normalized_words(replace_all(said, "’", ""), kBlanked)) words += word + " ";
    if (!words.empty()) found.push_back(std::move(words));
  }
  return found;
}

Verdict tom_tracking(std::string_view prediction, const std::string& reference, const json& /*item*/) {
  const Cells said = beliefs(prediction), wanted = beliefs(reference);
  if (wanted.empty()) return {0, 0, true};
  if (said == wanted) return {1, 1, true};
  const auto differ = std::ranges::mismatch(said, wanted);
  return {0, share(static_cast<double>(differ.in2 - wanted.begin()), wanted.size()), true};
}

struct Equation {
  double left = 0, right = 0, result = 0;
};

/// The line as an equation of integers that holds. A number that begins with 0, at which Python stops, makes it none.
std::optional<Equation> equation(std::string_view line) {
  static const Regex kForm(R"(^(-?[0-9]+)[ \t\f]*([-+*/])[ \t\f]*(-?[0-9]+)[ \t\f]*=\s*([-+]?[0-9]+)\z)");
  const RegexMatch parts = kForm.search(strip(line));
  if (parts.empty()) return std::nullopt;
  const auto number = [](std::string_view digits) {
    int64_t value = 0;
    digits.remove_prefix(digits.starts_with('+') ? 1 : 0);
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return static_cast<double>(value);
  };
  const Equation found{number(parts[1]), number(parts[3]), number(parts[4])};
  const char operation = parts[2].front();
  for (const std::string_view operand : {parts[1], parts[3]}) {
    if (operation != '+' && operand.starts_with('-')) return std::nullopt;
    if (operand.substr(operand.starts_with('-') ? 1 : 0).starts_with('0') && number(operand) != 0) return std::nullopt;
  }
  const double value = operation == '+'   ? found.left + found.right
                       : operation == '-' ? found.left - found.right
                       : operation == '*' ? found.left * found.right
                                          : found.left / found.right;
  return value == found.result ? std::optional(found) : std::nullopt;
}

bool reaches_target(std::vector<double> numbers, double target, std::string_view solution) {
  const Cells lines = split_on(solution, "\n");
  if (lines.size() != 3) return false;
  for (const std::string& line : lines) {
    const auto step = equation(line);
    if (!step) return false;
    for (const double operand : {step->left, step->right}) {
      const auto held = std::ranges::find(numbers, operand);
      if (held == numbers.end()) return false;
      numbers.erase(held);
    }
    numbers.push_back(step->result);
  }
  return numbers.front() == target;
}

/// Whether a step of the search does what the reference's does: the same operation on the same numbers, and the branch
/// goes on in both or in neither.
bool same_step(std::string_view said, std::string_view wanted) {
  if (said == wanted) return true;
  constexpr std::string_view kDrop = "drop this branch";
  return !contains(wanted, "Pick two numbers") && contains(wanted, "|- Try") &&
         said.substr(0, said.find('=')) == wanted.substr(0, wanted.find('=')) &&
         contains(said, kDrop) == contains(wanted, kDrop);
}

/// Number of the step that was compared last, from 0, of the reference's; -1 of them where none is said.
double search_share(std::string_view procedure, std::string_view reference) {
  const Cells said = split_on(strip(procedure), "\n"), wanted = split_on(strip(reference), "\n");
  if (said.front() != wanted.front() || wanted.size() < 2) return 0;
  const size_t both = std::min(said.size(), wanted.size());
  size_t last = std::min<size_t>(both - 1, 1);
  while (last + 1 < both && same_step(said[last], wanted[last])) ++last;
  return share(static_cast<double>(last) - 1, wanted.size() - 1);
}

std::string_view behind_last(std::string_view text, std::string_view mark) {
  const size_t at = text.rfind(mark);
  return at == std::string_view::npos ? text : text.substr(at + mark.size());
}

Verdict countdown(std::string_view prediction, const std::string& reference, const json& item) {
  constexpr std::string_view kSearch = "# Search Procedure";
  const auto solution = tagged(prediction, "Solution");
  if (solution && reaches_target(item.at("nums"), item.at("target"), *solution)) return {1, 1, true};
  if (!contains(prediction, kSearch)) return {0, 0, solution.has_value()};
  const std::string_view wanted = behind_last(reference, kSearch);
  return {0,
          search_share(behind_last(prediction, kSearch), wanted.substr(0, wanted.find("Now we have found the target"))),
          solution.has_value()};
}

/// The prediction is the record of a judge that ran the answer's program, not the answer.
Verdict pseudo_to_code(std::string_view prediction, const std::string& /*reference*/, const json& /*item*/) {
  const json record = json::parse(prediction, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object() || !record.contains("valid")) {
    fail({.place = "metric longproc",
          .found = "an answer to pseudo_to_code",
          .expected = "the record of the workload's judge, which runs its program"});
  }
  const double valid = record["valid"] == true ? 1 : 0;
  return {valid, valid, record.value("extracted", false)};
}

using Stay = std::pair<std::string, int64_t>;

int64_t day_of(std::string_view digits) {
  int64_t day = -1;
  std::from_chars(digits.data(), digits.data() + digits.size(), day);
  return day;
}

/// Cities and days of a plan, from its flights and its last day.
std::vector<Stay> stays_of(std::string_view plan) {
  static const Regex kTotal(R"(European cities for (\d+) days)"), kVisit(R"(\d+-(\d+))"),
      kFlight(R"(.*Day (\d+).*from (\w+) to (\w+))");
  std::vector<Stay> stays;
  int64_t total = -1, last = -1, arrival = 1;
  std::string city;
  for (const std::string& line : split_on(plan, "\n")) {
    if (const RegexMatch match = kTotal.search(line); !match.empty()) total = day_of(match[1]);
    if (const RegexMatch match = kVisit.search(line); !match.empty()) {
      last = day_of(match[1]);
      if (last == total) break;
    }
    if (const RegexMatch match = kFlight.search(line); !match.empty()) {
      const int64_t day = day_of(match[1]);
      stays.emplace_back(stays.empty() ? std::string(match[2]) : city, day - arrival + 1);
      arrival = day;
      city = match[3];
    }
  }
  if (stays.empty() || last < 0) return {};
  stays.emplace_back(city, last - arrival + 1);
  return stays;
}

/// Whether the plan's first stays are the wanted ones: "city**city" and "days**days".
bool is_plan(std::string_view plan, const json& item) {
  const std::vector<Stay> stays = stays_of(plan);
  const Cells cities = split_on(item.at("ground_truth_cities").get_ref<const std::string&>(), "**"),
              days = split_on(item.at("ground_truth_durations").get_ref<const std::string&>(), "**");
  if (stays.size() < cities.size() || days.size() != cities.size()) return false;
  for (size_t i = 0; i < cities.size(); ++i) {
    if (stays[i] != Stay{cities[i], day_of(days[i])}) return false;
  }
  return true;
}

/// Normalised lines of the procedure from its tag on, and of what follows.
Cells procedure_lines(std::string_view text) {
  constexpr std::string_view kTag = "<Solving Procedure>";
  const std::string plain = replace_all(text, "Output the plan in the required format:", "");
  const Cells parts = split_on(plain, kTag);
  Cells lines;
  for (const std::string& line : split_on(parts.size() > 1 ? std::string(kTag) + parts[1] : plain, "\n")) {
    if (!strip(line).empty()) lines.push_back(joined_words(line, " "));
  }
  return lines;
}

Verdict travel_planning(std::string_view prediction, const std::string& reference, const json& item) {
  const auto plan = tagged(prediction, "Plan");
  if (plan && is_plan(*plan, item)) return {1, 1, true};
  const Cells said = procedure_lines(prediction), wanted = procedure_lines(reference);
  const size_t both = std::min(said.size(), wanted.size());
  size_t last = 0;  // line compared last, which does not count
  while (last + 1 < both && contains(said[last], wanted[last])) ++last;
  return {0, both == 0 ? 0 : share(static_cast<double>(last), wanted.size()), plan.has_value()};
}

struct Task {
  const char* name;
  Verdict (*judge)(std::string_view prediction, const std::string& reference, const json& item);
};
constexpr Task kTasks[] = {{"html_to_tsv", html_to_tsv},       {"pseudo_to_code", pseudo_to_code},
                           {"path_traversal", path_traversal}, {"tom_tracking", tom_tracking},
                           {"countdown", countdown},           {"travel_planning", travel_planning}};

constexpr StoredMetric kPartial{"longproc_partial", "LongProc partial accuracy"};
constexpr StoredMetric kExtracted{"longproc_extracted", "LongProc answers found"};

MetricScore score(const MetricInput& input) {
  const std::string name = input.extras.value("task", "");
  const auto* const task = std::ranges::find(kTasks, name, [](const Task& each) { return std::string(each.name); });
  if (task == std::end(kTasks) || input.references.empty()) {
    fail({.place = "metric longproc",
          .found = fmt::format("the task \"{}\" and {} references", name, input.references.size()),
          .expected = "a task of LongProc without its length, and the reference output"});
  }
  const Verdict verdict = task->judge(input.prediction, input.references.front(), input.extras);
  return {verdict.score, {{kPartial.name, verdict.partial}, {kExtracted.name, verdict.extracted ? 1.0 : 0.0}}, {}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "longproc",
     .title = "LongProc score",
     .summary =
         "F1 of rows for html_to_tsv; for the others 1 where the whole answer is right. longproc_partial: how far "
         "it is right, as the official code counts: path_traversal with the first wrong line, countdown and "
         "travel_planning without the last line compared, so that a search of one line has less than nothing. An "
         "answer at which that code stops is wrong. extras: task; nums and target, or ground_truth_cities and "
         "ground_truth_durations.",
     .source = "princeton-pli/LongProc @78e873a longproc/",
     .score = score,
     .stored = {kPartial, kExtracted}});

}  // namespace kvarena::metrics
