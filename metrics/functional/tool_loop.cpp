#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/json_text.h"
#include "metrics/functional/function_call.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

enum class Verdict { right, malformed, missing, wrong_tool, wrong_argument, stale };

[[noreturn]] void refuse(const char* place, const std::string& found, const char* expected) {
  fail({.place = fmt::format("metric \"tool_loop\": {}", place), .found = found.substr(0, 120), .expected = expected});
}

/// Record that a loop of tools made of its answers.
json record_of(std::string_view prediction) {
  json record = json::parse(prediction, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object() || !record.value("steps", json()).is_array() || !record.contains("state")) {
    refuse("prediction", std::string(prediction), R"({"steps": [{"answer", "call", "result"}, ...], "state": ...})");
  }
  return record;
}

const json& member(const json& extras, const char* name) {
  if (const auto found = extras.find(name); found != extras.end()) return *found;
  refuse("extras", json_text(extras), "\"state\" at the end, and \"stale\" values of each call's arguments");
}

/// The call with values that were right before in place of those that are right now.
FunctionCall refreshed(FunctionCall call, const FunctionCall& golden, const json& stale) {
  for (const auto& [name, values] : stale.items()) {
    const auto given = call.arguments.find(name);
    const auto right = golden.arguments.find(name);
    if (given == call.arguments.end() || right == golden.arguments.end()) continue;
    if (std::ranges::find(values, *given) != values.end()) *given = *right;
  }
  return call;
}

Verdict judge(const json& step, const FunctionCall& golden, const json& stale) {
  const json call = step.value("call", json());
  if (call.is_null()) {
    const std::string answer = step.value("answer", "");
    return answer.find_first_of("({") == std::string::npos ? Verdict::missing : Verdict::malformed;
  }
  const FunctionCall made = call_from_json(call);
  if (same_call(made, golden)) return Verdict::right;
  if (made.name != golden.name) return Verdict::wrong_tool;
  return same_call(refreshed(made, golden, stale), golden) ? Verdict::stale : Verdict::wrong_argument;
}

MetricScore score_loop(const MetricInput& input) {
  const json record = record_of(input.prediction);
  const json& stale = member(input.extras, "stale");
  if (input.references.empty() || stale.size() != input.references.size()) {
    refuse("extras.stale", json_text(stale), "an object for each of the references, which are the right calls");
  }
  std::map<Verdict, double> counts;
  const json& steps = record["steps"];
  for (size_t i = 0; i < input.references.size(); ++i) {
    const FunctionCall golden = call_from_json(json::parse(input.references[i], nullptr, false));
    ++counts[i < steps.size() ? judge(steps[i], golden, stale[i]) : Verdict::missing];
  }
  const auto share = [&](Verdict verdict) { return counts[verdict] / static_cast<double>(input.references.size()); };
  return {.score = record["state"] == member(input.extras, "state") ? 1.0 : 0.0,
          .values = {{kToolSteps.name, share(Verdict::right)},
                     {kMalformedCalls.name, share(Verdict::malformed)},
                     {kMissingCalls.name, share(Verdict::missing)},
                     {kWrongTools.name, share(Verdict::wrong_tool)},
                     {kWrongArguments.name, share(Verdict::wrong_argument)},
                     {kStaleValues.name, share(Verdict::stale)}},
          .notes = {}};
}

json recompute(const json& row, const VectorContext&) {
  const auto references = row.at("references").get<std::vector<std::string>>();
  const MetricScore score =
      score_loop({row.at("prediction").get_ref<const std::string&>(), references, row.at("extras")});
  json expected(score.values);
  expected["state"] = score.score;
  return {{"expected", expected}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "tool_loop",
     .title = "Tool loop, right state at the end",
     .kind = MetricKind::functional,
     .summary = "1 when the state after the model's own calls is that after the right ones. Beside it shares of "
                "steps: the right call; no call; text that is none; another tool; the tool with another "
                "argument; with arguments that were right until a call changed them. Needs stale, state.",
     .source = "the project's; steps against state as in BFCL multi_turn and tau-bench",
     .score = score_loop,
     .stored = {kToolSteps, kMalformedCalls, kMissingCalls, kWrongTools, kWrongArguments, kStaleValues},
     .vectors = {{"tool_loop", recompute}}});

}  // namespace kvarena::metrics
