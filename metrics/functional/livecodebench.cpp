#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/json_text.h"
#include "harness/core/own_files.h"
#include "harness/core/python_judge.h"
#include "harness/core/run_code.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

constexpr const char* kPlace = "metric \"livecodebench\"";
constexpr int kSeconds = 6;         // of a test
constexpr int kMostSeconds = 3600;  // of a program's tests together, which bound themselves

/// Lines between the last two that have a fence; nothing where there are no two.
std::string code_in(std::string_view answer) {
  std::vector<size_t> starts = {0}, fences;
  while (starts.back() <= answer.size()) {
    const size_t end = std::min(answer.find('\n', starts.back()), answer.size());
    if (answer.substr(starts.back(), end - starts.back()).find("```") != std::string_view::npos) {
      fences.push_back(starts.size() - 1);
    }
    starts.push_back(end + 1);
  }
  if (fences.size() < 2) return "";
  const size_t begin = starts[fences[fences.size() - 2] + 1], end = starts[fences.back()];
  return std::string(answer.substr(begin, end > begin ? end - 1 - begin : 0));
}

/// Results of the tests of `extras`, up to the first that fails, and their number.
json run_tests(std::string_view answer, const json& extras) {
  require_code_allowed(kPlace);
  const auto tests = extras.find("tests"), function = extras.find("function");
  if (tests == extras.end() || function == extras.end()) {
    fail({.place = fmt::format("{}: extras", kPlace), .found = "no tests", .expected = "\"tests\" and \"function\""});
  }
  static PythonJudge judge({.place = kPlace, .needs = "a judge of programs", .action = ""},
                           {own_file("code_judge.py").string()});
  const json question = {{"code", code_in(answer)},
                         {"tests", *tests},
                         {"function", *function},
                         {"seconds", extras.value("seconds", kSeconds)}};
  return judge.ask(json_text(question), {"results of tests", [](const json& said) { return said.contains("results"); }},
                   std::chrono::seconds(kMostSeconds));
}

bool passed(const json& result) { return result.is_boolean() ? result.get<bool>() : result.get<double>() > 0; }

MetricScore score_program(const MetricInput& input) {
  const json said = run_tests(input.prediction, input.extras);
  const json& results = said["results"];
  MetricScore score{.score = std::ranges::all_of(results, passed) ? 1.0 : 0.0, .values = {}, .notes = {}};
  score.values["tests_passed"] = static_cast<double>(std::ranges::count_if(results, passed));
  score.values["tests"] = said["tests"];
  if (score.score == 0) {
    const json& last = results.back();
    score.notes["error"] = last == -3 ? "too late" : last == -4 ? "an error" : "another output";
  }
  return score;
}

json recompute(const json& row, const VectorContext&) {
  const json said = run_tests(row.at("model_output").get_ref<const std::string&>(), row);
  const json& results = said["results"];
  return {{"expected", {{"results", results}, {"passed", std::ranges::all_of(results, passed)}}}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "livecodebench",
     .title = "Programs that pass all tests",
     .kind = MetricKind::functional,
     .summary =
         "1 when the program between an answer's last two fences passes the problem's public and private tests, each "
         "within 6 s, as LiveCodeBench runs and compares them. Runs what a model wrote, in a process with bounds of "
         "time, memory and files: refused unless KVARENA_RUN_CODE=1.",
     .source = "LiveCodeBench/LiveCodeBench @28fef95, lcb_runner/evaluation/testing_util.py",
     .score = score_program,
     .needs_references = false,
     .vectors = {{"livecodebench", recompute}}});

}  // namespace kvarena::metrics
