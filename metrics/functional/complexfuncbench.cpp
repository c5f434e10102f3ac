#include "metrics/functional/complexfuncbench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"
#include "metrics/algorithms/python_json.h"
#include "metrics/functional/function_call.h"
#include "metrics/jsonl.h"
#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace complexfuncbench {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Look-ups that cost nothing and may be made at any step.
constexpr std::array<std::string_view, 6> kFreeFunctions = {"Location_to_Lat_Long",       "Search_Hotel_Destination",
                                                            "Search_Attraction_Location", "Search_Car_Location",
                                                            "Search_Flight_Location",     "Taxi_Search_Location"};

json plain(const ordered_json& value) { return json::parse(value.dump()); }

FunctionCall function_call(const Call& call) {
  return {call.at("name").get<std::string>(), plain(call.at("arguments"))};
}

std::set<std::string> filter_items(const json& value) {
  std::set<std::string> items;
  for (const std::string& item : split_on(value.is_string() ? value.get<std::string>() : value.dump(), ",")) {
    items.emplace(strip(item));
  }
  return items;
}

std::string python_list(const std::vector<std::string>& names) {
  return fmt::format("['{}']", fmt::join(names, "', '"));
}

std::vector<std::string> keys_of(const ordered_json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

// {'a', 'b'}: of Python's unordered set the sorted form.
std::string python_set_difference(const std::vector<std::string>& all, const std::vector<std::string>& known) {
  std::set<std::string> rest(all.begin(), all.end());
  for (const std::string& name : known) rest.erase(name);
  return fmt::format("{{'{}'}}", fmt::join(rest, "', '"));
}

bool includes_all(const std::vector<std::string>& names, const std::vector<std::string>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  });
}

std::optional<std::string> type_error(const std::string& function, const std::string& name, const json& value,
                                      const std::string& type) {
  const bool fits = type == "string"    ? value.is_string()
                    : type == "number"  ? value.is_number() || value.is_boolean()
                    : type == "boolean" ? value.is_boolean()
                    : type == "array"   ? value.is_array()
                                        : true;
  if (fits) return std::nullopt;
  return fmt::format("Parameter {} of function {} should be {} {}, but <class '{}'> is provided.", name, function,
                     type == "array" ? "an" : "a", type, python_type_name(value));
}

struct FreeCall {
  bool called = false;
  ordered_json observation;
};

std::map<std::string, FreeCall> free_calls(const ordered_json& conversation) {
  std::map<std::string, FreeCall> calls;
  for (size_t i = 0; i + 1 < conversation.size(); ++i) {
    if (!conversation[i].contains("function_call")) continue;
    const ordered_json& made = conversation[i]["function_call"];
    for (size_t j = 0; j < made.size(); ++j) {
      const auto name = made[j].at("name").get<std::string>();
      if (std::find(kFreeFunctions.begin(), kFreeFunctions.end(), name) == kFreeFunctions.end()) continue;
      calls.emplace(made[j].dump(), FreeCall{false, conversation[i + 1].at("content").at(j)});
    }
  }
  return calls;
}

Call with_sorted_arguments(const Call& call) {
  Call sorted = call;
  sorted["arguments"] = ordered_json::object();
  auto keys = keys_of(call.at("arguments"));
  std::sort(keys.begin(), keys.end());
  for (const std::string& key : keys) sorted["arguments"][key] = call["arguments"][key];
  return sorted;
}

struct Pair {
  int64_t index;  // of the predicted call
  Call predicted, golden;
  ordered_json observation;
};

// Equal calls and free calls first, in the benchmark's order of tries; the rest in order.
std::vector<Pair> pair_up(const std::vector<Call>& predicted, const std::vector<Call>& golden,
                          const std::vector<ordered_json>& observations, std::map<std::string, FreeCall>& free) {
  std::vector<Pair> pairs;
  std::vector<size_t> left;
  std::vector<bool> used(golden.size());
  for (size_t p = 0; p < predicted.size(); ++p) {
    bool found = false;
    for (size_t g = 0; g < golden.size() && !found; ++g) {
      if (used[g]) continue;
      const auto free_call = free.find(predicted[p].dump());
      if (python_equal(plain(predicted[p]), plain(golden[g]))) {
        pairs.push_back({static_cast<int64_t>(p), predicted[p], golden[g], observations.at(g)});
        used[g] = found = true;
      } else if (free_call != free.end()) {
        pairs.push_back({static_cast<int64_t>(p), predicted[p], predicted[p], free_call->second.observation});
        free_call->second.called = found = true;
      }
    }
    if (!found) left.push_back(p);
  }
  size_t next = 0;
  for (size_t g = 0; g < golden.size() && next < left.size(); ++g) {
    if (used[g]) continue;
    const size_t p = left[next++];
    pairs.push_back({static_cast<int64_t>(p), predicted[p], golden[g], observations.at(g)});
  }
  return pairs;
}

}  // namespace

std::optional<std::string> format_error(const Call& call, const ordered_json& functions) {
  const auto name = call.at("name").get<std::string>();
  const auto function =
      std::find_if(functions.begin(), functions.end(), [&](const auto& f) { return f.at("name") == name; });
  if (function == functions.end()) return fmt::format("Function {} is not defined in the function list.", name);
  const ordered_json& properties = function->at("parameters").at("properties");
  const auto required = function->at("parameters").value("required", std::vector<std::string>{});
  const auto given = keys_of(call.at("arguments"));
  if (!includes_all(given, required)) {
    return fmt::format("Function {} requires parameters {}, but {} do not provide {}", name, python_list(required),
                       python_list(given), python_set_difference(required, given));
  }
  if (!includes_all(keys_of(properties), given)) {
    return fmt::format("Function {} does not have parameters {}", name,
                       python_set_difference(given, keys_of(properties)));
  }
  for (const auto& [key, value] : call.at("arguments").items()) {
    if (auto error = type_error(name, key, plain(value), properties[key].value("type", ""))) return error;
  }
  return std::nullopt;
}

bool rule_based(const Call& predicted, const Call& golden) {
  return same_call(function_call(predicted), function_call(golden));
}

std::optional<std::string> value_error(const Call& predicted, const Call& golden, const json& exact_match_values) {
  const auto name = predicted.at("name").get<std::string>();
  if (name != golden.at("name").get<std::string>()) return "func_error";
  const auto strict = exact_match_values.value(name, std::vector<std::string>{});
  const json given = plain(predicted.at("arguments"));
  for (const auto& [key, ordered_value] : golden.at("arguments").items()) {
    if (std::find(strict.begin(), strict.end(), key) == strict.end()) continue;
    if (!given.contains(key)) return "param_missing";
    const json value = plain(ordered_value);
    const bool equal =
        key == "categories_filter" ? filter_items(value) == filter_items(given[key]) : python_equal(given[key], value);
    if (!equal) return "value_error";
  }
  return std::nullopt;
}

std::optional<std::string> difference(const Call& predicted, const Call& golden) {
  const json given = plain(predicted.at("arguments"));
  const ordered_json& wanted = golden.at("arguments");
  for (const auto& [key, value] : wanted.items()) {
    if (!given.contains(key)) return "param_missing";
    if (!python_equal(plain(value), given[key])) return "value_error";
  }
  for (const auto& [key, value] : given.items()) {
    if (!wanted.contains(key)) return "param_hallucination";
  }
  return std::nullopt;
}

TurnResult check_turn(const ordered_json& conversation, const ordered_json& functions, std::vector<Call> predicted,
                      std::vector<Call> golden, const std::vector<ordered_json>& observations,
                      const json& exact_match_values) {
  auto free = free_calls(conversation);
  for (Call& call : predicted) call = with_sorted_arguments(call);
  for (Call& call : golden) call = with_sorted_arguments(call);
  TurnResult result;
  for (const Pair& pair : pair_up(predicted, golden, observations, free)) {
    if (format_error(pair.predicted, functions)) {
      result.format_errors.push_back(pair.index);
    } else if (rule_based(pair.predicted, pair.golden)) {
      result.matched_predictions.push_back(pair.index);
      result.matched_golden.push_back(pair.golden);
      result.observations[pair.index] = pair.observation;
    } else {
      const auto error = value_error(pair.predicted, pair.golden, exact_match_values);
      result.error_types.push_back(error ? error : difference(pair.predicted, pair.golden));
    }
  }
  std::sort(result.matched_predictions.begin(), result.matched_predictions.end());
  return result;
}

json table(const json& results) {
  static const json succeeded = "Success.";  // GCC 12 sees an overrun where JSON is compared with a literal
  struct Sums {
    int64_t success = 0, correct = 0, total = 0;
  };
  std::map<std::string, Sums> domains;
  std::map<std::string, std::pair<double, int64_t>>
      judged;  // "complete", "correct": sum and rows with a mark of 0, 1, 2
  Sums all;
  for (const json& result : results) {
    const auto id = result.at("id").get<std::string>();
    Sums& domain = domains[id.substr(0, id.rfind('-'))];
    const json& counts = result.at("count_dict");
    for (Sums* sums : {&domain, &all}) {
      sums->success += result.at("message") == succeeded;
      sums->correct += counts.at("correct_call_num").get<int64_t>();
      sums->total += counts.at("total_call_num").get<int64_t>();
    }
    for (const char* mark : {"complete", "correct"}) {
      if (!result.at("resp_eval").is_object()) continue;
      const auto value = result["resp_eval"].at(mark).at("score").get<double>();
      if (value != 0 && value != 1 && value != 2) continue;
      judged[mark].first += value;
      ++judged[mark].second;
    }
  }
  const auto percent = [](int64_t part, int64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole) * 100;
  };
  const auto mean = [&](const char* mark) {
    return judged[mark].second == 0 ? 0.0 : judged[mark].first / static_cast<double>(judged[mark].second);
  };
  json success = json::object();
  json accuracy = json::object();
  for (const auto& [name, sums] : domains) {
    if (sums.success > 0) success[name] = percent(sums.success, name == "Cross" ? 400 : 150);
    accuracy[name] = percent(sums.correct, sums.total);
  }
  return {{"Domain Success Rate", success},
          {"Domain Call Accuracy", accuracy},
          {"Overall Success Rate", percent(all.success, 1000)},
          {"Overall Call Accuracy", percent(all.correct, all.total)},
          {"Complete Score", mean("complete")},
          {"Correct Score", mean("correct")}};
}

}  // namespace complexfuncbench

namespace {

using nlohmann::json;
using nlohmann::ordered_json;
namespace cfb = complexfuncbench;

std::vector<ordered_json> list_of(const ordered_json& array) { return {array.begin(), array.end()}; }

json exact_match_values(const VectorContext& context) {
  return json::parse(read_file(context.data_folder / "complexfuncbench/exact_match_values.json"));
}

void for_each_dialogue(const VectorContext& context, const std::function<void(const ordered_json&)>& visit) {
  for_each_line(context.data_folder / "complexfuncbench/synthetic.jsonl",
                [&](std::string_view line, int64_t) { visit(ordered_json::parse(line)); });
}

// Rows of single calls name no dialogue: every function of the data set is known.
json recompute_call(const json&, const VectorContext& context) {
  const auto row = ordered_json::parse(context.row_text);
  ordered_json functions = ordered_json::array();
  for_each_dialogue(context, [&](const ordered_json& dialogue) {
    for (const auto& function : dialogue.at("functions")) functions.push_back(function);
  });
  const cfb::Call& predicted = row.at("predicted_call");
  const cfb::Call& golden = row.at("golden_call");
  const auto or_null = [](const std::optional<std::string>& text) { return text ? json(*text) : json(); };
  const auto values = cfb::value_error(predicted, golden, exact_match_values(context));
  const auto format = cfb::format_error(predicted, functions);
  return {{"expected_rule_based", cfb::rule_based(predicted, golden)},
          {"expected_value_checker", {{"ok", !values}, {"error_type", or_null(values)}}},
          {"expected_format_ok", !format},
          {"expected_format_error", or_null(format)},
          {"expected_error_message_type", or_null(cfb::difference(predicted, golden))}};
}

json turn_as_json(const cfb::TurnResult& turn) {
  json observations = json::object();
  for (const auto& [index, observation] : turn.observations) {
    observations[std::to_string(index)] = json::parse(observation.dump());
  }
  json errors = json::array();
  for (const auto& error : turn.error_types) errors.push_back(error ? json(*error) : json());
  json golden = json::array();
  for (const auto& call : turn.matched_golden) golden.push_back(json::parse(call.dump()));
  return {{"matched_prediction_indices", turn.matched_predictions},
          {"matched_golden_calls", std::move(golden)},
          {"observations", std::move(observations)},
          {"error_types", std::move(errors)},
          {"format_error_indices", turn.format_errors}};
}

json recompute_turn(const json&, const VectorContext& context) {
  const auto row = ordered_json::parse(context.row_text);
  json expected;
  for_each_dialogue(context, [&](const ordered_json& dialogue) {
    if (dialogue.at("id") != row.at("row_id")) return;
    const ordered_json& conversation = dialogue.at("conversations");
    int64_t step = row.at("golden_step").get<int64_t>();
    for (size_t i = 0; i + 1 < conversation.size(); ++i) {
      if (!conversation[i].contains("function_call") || step-- != 0) continue;
      expected =
          turn_as_json(cfb::check_turn(conversation, dialogue.at("functions"), list_of(row.at("predicted_calls")),
                                       list_of(conversation[i]["function_call"]),
                                       list_of(conversation[i + 1].at("content")), exact_match_values(context)));
    }
  });
  return {{"expected", std::move(expected)}};
}

json recompute_aggregate(const json& row, const VectorContext&) {
  return {{"expected", cfb::table(row.at("results"))}};
}

// extras: golden_calls, and functions for the format check.
MetricScore score_calls(const MetricInput& input) {
  MetricScore score = find_metric("exact_call_accuracy").score(input);
  const auto functions = input.extras.find("functions");
  if (functions == input.extras.end()) return score;
  int64_t malformed = 0;
  const auto described = ordered_json::parse(functions->dump());
  for (const FunctionCall& call : parse_function_calls(input.prediction)) {
    const std::string text = json_text(json{{"name", call.name}, {"arguments", call.arguments}});
    const auto error = cfb::format_error(ordered_json::parse(text), described);
    malformed += error.has_value();
    if (error && !score.notes.contains("format_error")) score.notes["format_error"] = *error;
  }
  score.values["format_errors"] = static_cast<double>(malformed);
  return score;
}

}  // namespace

KVARENA_METRIC(
    {.id = "complexfuncbench",
     .title = "ComplexFuncBench call accuracy",
     .kind = MetricKind::functional,
     .summary = "exact_call_accuracy with the benchmark's format check of each predicted call against "
                "extras.functions (values.format_errors, notes.format_error). The turn protocol and the table "
                "are functions of complexfuncbench.h.",
     .source = "THUDM/ComplexFuncBench @c37b284e utils/compare_method.py, print_results.py",
     .score = score_calls,
     .vectors = {{"complexfuncbench_call", recompute_call},
                 {"complexfuncbench_turn", recompute_turn},
                 {"complexfuncbench_aggregate", recompute_aggregate}}});

}  // namespace kvarena::metrics
