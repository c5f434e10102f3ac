#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/core/error.h"
#include "harness/core/json_text.h"
#include "metrics/algorithms/python_calls.h"
#include "metrics/algorithms/python_json.h"
#include "metrics/functional/function_call.h"
#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

constexpr int64_t kMaxDepth = 200;  // nested deeper, a value is noise

struct ValueExtent {
  size_t end = std::string_view::npos;  // one past the closing bracket, npos when it never closes
  int64_t depth = 0;
};

/// Measures the bracketed value that opens at `start`.
ValueExtent extent_of_value(std::string_view text, size_t start) {
  ValueExtent extent;
  BracketDepth depth;
  for (size_t i = start; i < text.size(); ++i) {
    const int64_t open = depth.after(text[i]);
    if (open == 0) {
      extent.end = i + 1;
      break;
    }
    extent.depth = std::max(extent.depth, open);
  }
  return extent;
}

const json* arguments_of(const json& value) {
  for (const char* key : {"arguments", "parameters"}) {
    const auto found = value.find(key);
    if (found != value.end()) return &*found;
  }
  return nullptr;
}

// Whether the value is a call; if so it is appended.
bool take_call(const json& value, std::vector<FunctionCall>& calls) {
  if (!value.is_object() || !value.contains("name") || !value["name"].is_string()) return false;
  const json* arguments = arguments_of(value);
  if (arguments == nullptr) return false;
  FunctionCall call{value["name"].get<std::string>(), *arguments};
  if (arguments->is_string()) {
    const auto& text = arguments->get_ref<const std::string&>();
    if (nests_deeply(text)) return false;
    call.arguments = json::parse(text, nullptr, false);
  }
  if (!call.arguments.is_object()) return false;
  calls.push_back(std::move(call));
  return true;
}

bool take_calls(const json& value, std::vector<FunctionCall>& calls) {
  if (!value.is_array()) return take_call(value, calls);
  bool any = false;
  for (const json& element : value) any |= take_call(element, calls);
  return any;
}

constexpr int kMaxUnclosed =
    100;  // brackets that never close; beyond, text is noise and scanning it again is quadratic

std::vector<FunctionCall> json_calls(std::string_view text) {
  std::vector<FunctionCall> calls;
  int unclosed = 0;
  for (size_t at = text.find_first_of("{["); at != std::string_view::npos && unclosed < kMaxUnclosed;
       at = text.find_first_of("{[", at)) {
    const ValueExtent extent = extent_of_value(text, at);
    if (extent.end == std::string_view::npos) {
      ++unclosed;
      ++at;
    } else if (extent.depth > kMaxDepth) {
      at = extent.end;
    } else {
      const json value = json::parse(text.substr(at, extent.end - at), nullptr, false);
      at = !value.is_discarded() && take_calls(value, calls) ? extent.end : at + 1;
    }
  }
  return calls;
}

std::vector<FunctionCall> python_calls(std::string_view text) {
  std::vector<FunctionCall> calls;
  const auto decoded = parse_python_calls(text);
  if (!decoded) return calls;
  for (const PythonCall& call : *decoded) {
    FunctionCall out{call.name};
    for (const auto& [name, value] : call.arguments) out.arguments[name] = to_json(value);
    calls.push_back(std::move(out));
  }
  return calls;
}

std::set<std::string> filter_items(const json& value) {
  std::set<std::string> items;
  for (const std::string& item : split_on(value.get_ref<const std::string&>(), ",")) items.emplace(strip(item));
  return items;
}

bool same_value(const std::string& name, const json& predicted, const json& golden) {
  if (name == "categories_filter" && predicted.is_string() && golden.is_string()) {
    if (filter_items(predicted) == filter_items(golden)) return true;
  }
  return python_equal(predicted, golden);
}

int64_t equal_arguments(const FunctionCall& predicted, const FunctionCall& golden) {
  int64_t equal = 0;
  for (const auto& [name, value] : golden.arguments.items()) {
    const auto found = predicted.arguments.find(name);
    equal += found != predicted.arguments.end() && same_value(name, *found, value);
  }
  return equal;
}

// How well two calls fit; larger is better.
int64_t fit(const FunctionCall& predicted, const FunctionCall& golden) {
  if (same_call(predicted, golden)) return int64_t{1} << 40;
  return (predicted.name == golden.name ? int64_t{1} << 20 : 0) + equal_arguments(predicted, golden);
}

std::vector<FunctionCall> golden_calls(const MetricInput& input) {
  std::vector<FunctionCall> calls;
  const auto found = input.extras.find("golden_calls");
  if (found != input.extras.end()) {
    for (const json& value : *found) calls.push_back(call_from_json(value));
    return calls;
  }
  for (const std::string& reference : input.references) {
    const json value = json::parse(reference, nullptr, false);
    if (value.is_array()) {
      for (const json& element : value) calls.push_back(call_from_json(element));
    } else {
      calls.push_back(call_from_json(value.is_discarded() ? json(reference) : value));
    }
  }
  return calls;
}

MetricScore exact_call_accuracy(const MetricInput& input) {
  const auto predicted = parse_function_calls(input.prediction);
  const auto golden = golden_calls(input);
  MetricScore score;
  int64_t correct = 0;
  for (const CallPair& pair : pair_calls(predicted, golden)) {
    correct += pair.error == CallError::none;
    if (pair.error != CallError::none && !score.notes.contains("error")) score.notes["error"] = name_of(pair.error);
  }
  const auto wanted = static_cast<double>(golden.size());
  score.score = golden.empty() ? (predicted.empty() ? 1.0 : 0.0) : static_cast<double>(correct) / wanted;
  score.values = {{"correct_calls", static_cast<double>(correct)},
                  {kGoldenCalls.name, wanted},
                  {"predicted_calls", static_cast<double>(predicted.size())},
                  {"all_calls_correct", score.score == 1.0 && predicted.size() == golden.size()}};
  return score;
}

}  // namespace

FunctionCall call_from_json(const json& value) {
  std::vector<FunctionCall> calls;
  if (take_call(value, calls)) return calls.front();
  const std::string shown = json_text(value).substr(0, 120);
  fail({.place = "golden function call",
        .found = shown,
        .expected = "{\"name\": ..., \"arguments\": {...}} (or \"parameters\")"});
}

std::vector<FunctionCall> parse_function_calls(std::string_view text) {
  std::vector<FunctionCall> calls = json_calls(text);
  return calls.empty() ? python_calls(text) : calls;
}

bool same_call(const FunctionCall& predicted, const FunctionCall& golden) {
  return why_not_same(predicted, golden) == CallError::none;
}

std::string_view name_of(CallError error) {
  switch (error) {
    case CallError::none: return "none";
    case CallError::missing_call: return "missing_call";
    case CallError::name_error: return "name_error";
    case CallError::value_error: return "value_error";
    case CallError::param_missing: return "param_missing";
    case CallError::param_hallucination: return "param_hallucination";
  }
  return "";
}

CallError why_not_same(const FunctionCall& predicted, const FunctionCall& golden) {
  if (predicted.name != golden.name) return CallError::name_error;
  for (const auto& [name, value] : golden.arguments.items()) {
    const auto found = predicted.arguments.find(name);
    if (found == predicted.arguments.end()) return CallError::param_missing;
    if (!same_value(name, *found, value)) return CallError::value_error;
  }
  return predicted.arguments.size() == golden.arguments.size() ? CallError::none : CallError::param_hallucination;
}

std::vector<CallPair> pair_calls(std::span<const FunctionCall> predicted, std::span<const FunctionCall> golden) {
  struct Candidate {
    int64_t fit, golden, predicted;
  };
  std::vector<Candidate> candidates;
  for (size_t g = 0; g < golden.size(); ++g) {
    for (size_t p = 0; p < predicted.size(); ++p) {
      candidates.push_back({fit(predicted[p], golden[g]), static_cast<int64_t>(g), static_cast<int64_t>(p)});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.fit > b.fit; });
  std::vector<CallPair> pairs(golden.size());
  for (size_t g = 0; g < golden.size(); ++g) pairs[g].golden = static_cast<int64_t>(g);
  std::vector<bool> used(predicted.size());
  for (const Candidate& c : candidates) {
    CallPair& pair = pairs[static_cast<size_t>(c.golden)];
    const auto p = static_cast<size_t>(c.predicted);
    if (pair.predicted >= 0 || used[p]) continue;
    used[p] = true;
    pair.predicted = c.predicted;
    pair.error = why_not_same(predicted[p], golden[static_cast<size_t>(c.golden)]);
  }
  return pairs;
}

KVARENA_METRIC(
    {.id = kExactCallAccuracy.name,
     .title = kExactCallAccuracy.title,
     .kind = MetricKind::functional,
     .summary = "Golden calls that a predicted call equals (name, set of argument names, every value) over "
                "golden calls. Golden calls: extras.golden_calls, or references as JSON. No judge and no live "
                "API. Reports weigh a sample by its golden calls, so that means are of all calls of a data set.",
     .source = "VeriCache, exactly matching arguments; THUDM/ComplexFuncBench @c37b284e "
               "utils/compare_method.py rule_based",
     .score = exact_call_accuracy,
     .stored = {kGoldenCalls}});

}  // namespace kvarena::metrics
