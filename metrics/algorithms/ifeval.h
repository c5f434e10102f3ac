#pragma once
// The 25 kinds of instruction of IFEval (Zhou et al. 2023, arXiv 2311.07911) that a program can check.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::metrics {

/// Whether `response` follows the instruction as the official check_following() decides. `id` is "group:name" and
/// `arguments` the row's kwargs for it, in which null counts as missing. Throws UserError that names the instruction
/// and the argument that is unknown, missing or of another form; where one is missing, the official code draws it at
/// random.
[[nodiscard]] bool follows_instruction(const std::string& id, const nlohmann::json& arguments,
                                       std::string_view response);

/// Ids of all instructions, sorted.
[[nodiscard]] std::vector<std::string> ifeval_instructions();

}  // namespace kvarena::metrics
