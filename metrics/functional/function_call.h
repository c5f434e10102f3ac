#pragma once
// Function calls: found in a model's text, compared with golden ones without a judge.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::metrics {

struct FunctionCall {
  std::string name;
  nlohmann::json arguments = nlohmann::json::object();  ///< always an object
};

/// {"name": text, "arguments" or "parameters": object, or a string that holds one}. Throws UserError for another form.
[[nodiscard]] FunctionCall call_from_json(const nlohmann::json& value);

/// The calls in a model's answer, in order: every JSON object of the above form, alone or in arrays, wherever it stands
/// in the text (fences, <|python_tag|>, tags, separators and words around it do not matter); when there is none, a list
/// of Python calls with keyword arguments, `[name(a=1, b="x"), ...]`, that fills the whole text. Empty when the answer
/// is plain text. JSON that is cut off or malformed is no call.
[[nodiscard]] std::vector<FunctionCall> parse_function_calls(std::string_view text);

/// Same name, same set of argument names, every value equal as Python compares JSON values (1, 1.0 and true are equal,
/// "2" and 2 are not); `categories_filter` as a set of comma-separated items (ComplexFuncBench, rule_based).
[[nodiscard]] bool same_call(const FunctionCall& predicted, const FunctionCall& golden);

enum class CallError { none, missing_call, name_error, value_error, param_missing, param_hallucination };
[[nodiscard]] std::string_view name_of(CallError error);
/// Why same_call does not hold. Of several reasons the first golden argument's decides, then unknown arguments.
[[nodiscard]] CallError why_not_same(const FunctionCall& predicted, const FunctionCall& golden);

struct CallPair {
  int64_t golden = 0;
  int64_t predicted = -1;  ///< -1: no call left for this golden one
  CallError error = CallError::missing_call;
};

/// Pairs each golden call with at most one predicted call: equal calls first, then calls of the same name with the most
/// equal arguments, then whatever is left; ties by order. In the order of the golden calls.
[[nodiscard]] std::vector<CallPair> pair_calls(std::span<const FunctionCall> predicted,
                                               std::span<const FunctionCall> golden);

}  // namespace kvarena::metrics
