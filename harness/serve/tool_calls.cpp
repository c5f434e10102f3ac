#include "harness/serve/tool_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "harness/core/json_text.h"
#include "harness/serve/answer_json.h"
#include "metrics/functional/function_call.h"

namespace kvarena::serve {
namespace {

/// The words before the marks that models put before their calls, and before JSON and lists.
std::string before_calls(const std::string& text) {
  size_t end = text.size();
  for (const char* mark :
       {"<tool_call", "<|tool_call", "<function", "<|python_tag|>", "[TOOL_CALLS]", "```", "{", "["}) {
    end = std::min(end, text.find(mark));
  }
  const size_t last = text.substr(0, end).find_last_not_of(" \n\r\t");
  return last == std::string::npos ? "" : text.substr(0, last + 1);
}

}  // namespace

ToolCalls find_tool_calls(const std::string& text, const std::string& id) {
  const std::vector<metrics::FunctionCall> calls = metrics::parse_function_calls(text);
  ToolCalls found{.text = calls.empty() ? text : before_calls(text)};
  for (const metrics::FunctionCall& call : calls) {
    nlohmann::json one = nlohmann::json::object();
    one["id"] = fmt::format("call-{}-{}", id, found.list.size());
    one["type"] = "function";
    one["function"]["name"] = call.name;
    one["function"]["arguments"] = json_text(call.arguments);
    found.list.push_back(std::move(one));
  }
  return found;
}

}  // namespace kvarena::serve
