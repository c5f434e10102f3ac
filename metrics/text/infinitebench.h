#pragma once
// InfiniteBench's scorers, of which SCBench has taken some over.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace kvarena::metrics {

/// Score of a prediction by the scorer of `task`, 0 where the official code raises. `label` has the type that the files
/// have: a list of answers, a text, a number. `model` is the name that math_calc reads. Throws UserError for another
/// task.
[[nodiscard]] double infinitebench_score(const std::string& task, std::string_view prediction,
                                         const nlohmann::json& label, const std::string& model = "generic");

}  // namespace kvarena::metrics
