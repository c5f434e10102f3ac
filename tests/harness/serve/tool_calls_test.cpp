// Calls of tools in an answer, as clients of chats read them.

#include "harness/serve/tool_calls.h"

#include <gtest/gtest.h>

namespace kvarena::serve {
namespace {

using nlohmann::json;

TEST(ToolCalls, AreFoundInTheFormsThatModelsWrite) {
  const json arguments = {{"city", "Bern"}, {"days", 2}};
  const char* const kForms[] = {
      R"(<tool_call>
{"name": "weather", "arguments": {"city": "Bern", "days": 2}}
</tool_call>)",
      R"(<|python_tag|>{"name": "weather", "parameters": {"city": "Bern", "days": 2}})",
      R"([TOOL_CALLS][{"name": "weather", "arguments": {"city": "Bern", "days": 2}}])",
      R"([weather(city="Bern", days=2)])",
  };
  for (const char* form : kForms) {
    SCOPED_TRACE(form);
    const ToolCalls found = find_tool_calls(form, "chatcmpl-1");
    EXPECT_EQ(found.text, "");
    ASSERT_EQ(found.list.size(), 1U);
    const json& call = found.list[0];
    EXPECT_EQ(call.at("id"), "call-chatcmpl-1-0");
    EXPECT_EQ(call.at("type"), "function");
    EXPECT_EQ(call.at("function").at("name"), "weather");
    EXPECT_EQ(json::parse(call.at("function").at("arguments").get<std::string>()), arguments);
  }
}

TEST(ToolCalls, LeaveTheWordsBeforeThem) {
  const ToolCalls found = find_tool_calls(
      "I look it up.\n\n<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>\n"
      "<tool_call>{\"name\": \"b\", \"arguments\": {}}</tool_call>",
      "x");
  EXPECT_EQ(found.text, "I look it up.");
  ASSERT_EQ(found.list.size(), 2U);
  EXPECT_EQ(found.list[1].at("id"), "call-x-1");
  EXPECT_EQ(found.list[1].at("function").at("name"), "b");
}

TEST(ToolCalls, ATextWithoutOneStaysWhole) {
  for (const char* text : {"It rains.", "{\"name\": 3}", "see [1] and {x}", "{\"name\": \"a\", \"argu"}) {
    const ToolCalls found = find_tool_calls(text, "x");
    EXPECT_EQ(found.text, text);
    EXPECT_TRUE(found.list.empty());
  }
}

}  // namespace
}  // namespace kvarena::serve
