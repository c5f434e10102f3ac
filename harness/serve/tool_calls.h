#pragma once
// Calls of tools in an answer, in the form of chats.

#include <nlohmann/json.hpp>
#include <string>

namespace kvarena::serve {

struct ToolCalls {
  std::string text;                               // before the first call
  nlohmann::json list = nlohmann::json::array();  // "tool_calls" of a message
};

/// Calls that an answer makes, in any form that metrics/functional/function_call.h reads; without one the text stays
/// whole. `id`: of the answer, unique among answers.
[[nodiscard]] ToolCalls find_tool_calls(const std::string& text, const std::string& id);

}  // namespace kvarena::serve
