#pragma once
// ComplexFuncBench: calls of one step compared with the golden ones, without embedding, live API or judge.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvarena::metrics::complexfuncbench {

/// {"name", "arguments"} with the members in the order written: free calls are recognised by their JSON text.
using Call = nlohmann::ordered_json;

/// Nothing when the call is well-formed for the functions, else the message the benchmark feeds back to the model.
[[nodiscard]] std::optional<std::string> format_error(const Call& call, const nlohmann::ordered_json& functions);

/// Same name, same argument names, every value equal; categories_filter as a set.
[[nodiscard]] bool rule_based(const Call& predicted, const Call& golden);

/// Nothing when the golden values of the parameters that must match (exact_match_values.json, by function) are there
/// and equal; else "func_error", "param_missing" or "value_error".
[[nodiscard]] std::optional<std::string> value_error(const Call& predicted, const Call& golden,
                                                     const nlohmann::json& exact_match_values);

/// The reason given for two calls that differ: "param_missing", "value_error", "param_hallucination"; nothing when
/// their arguments are equal.
[[nodiscard]] std::optional<std::string> difference(const Call& predicted, const Call& golden);

struct TurnResult {
  std::vector<int64_t> matched_predictions;                ///< ascending
  std::vector<Call> matched_golden;                        ///< in the order of matching
  std::map<int64_t, nlohmann::ordered_json> observations;  ///< by predicted index
  std::vector<std::optional<std::string>> error_types;     ///< of pairs that did not match
  std::vector<int64_t> format_errors;                      ///< predicted indices
};

/// One step. `conversation` is the dialogue (its free calls may be made at any time); golden calls and observations are
/// those of the step. Calls left after exact matching are paired in order.
[[nodiscard]] TurnResult check_turn(const nlohmann::ordered_json& conversation, const nlohmann::ordered_json& functions,
                                    std::vector<Call> predicted, std::vector<Call> golden,
                                    const std::vector<nlohmann::ordered_json>& observations,
                                    const nlohmann::json& exact_match_values);

/// The benchmark's table from results {"id", "message", "count_dict", "resp_eval"}. Success rates have the fixed
/// denominators 150, 400 (Cross) and 1000.
[[nodiscard]] nlohmann::json table(const nlohmann::json& results);

}  // namespace kvarena::metrics::complexfuncbench
