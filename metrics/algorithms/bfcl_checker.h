#pragma once
// BFCL's check of decoded Python calls against possible answers.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "metrics/algorithms/python_calls.h"

namespace kvarena::metrics {

/// Nothing when the calls are right, else BFCL's error type ("type_error:simple", "value_error:string",
/// "simple_function_checker:missing_required" ...). `functions` is the entry's list of descriptions, `ground_truth` its
/// list of {function: {parameter: [accepted values]}}; `category` decides how calls are paired. Throws UserError for
/// entries that are not of this form.
[[nodiscard]] std::optional<std::string> check_bfcl_calls(const nlohmann::json& functions,
                                                          std::span<const PythonCall> calls,
                                                          const nlohmann::json& ground_truth,
                                                          const std::string& category);

}  // namespace kvarena::metrics
