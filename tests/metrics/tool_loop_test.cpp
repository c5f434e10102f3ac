// Scores of tool loops: kinds of failure by answers made for them.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "metrics/registry.h"
#include "tests/support/error_of.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

const std::vector<std::string> kGolden = {
    R"({"name": "send", "arguments": {"guest": "Tom", "room": 5, "item": "rug"}})"};
const json kExtras = json::parse(R"({"stale": [{"room": [3, 4]}], "state": {"items": {"5": ["rug"]}}})");

MetricScore scored(const json& steps, const json& state = json::object(), const json& extras = kExtras) {
  const std::string record = json{{"steps", steps}, {"state", state}}.dump();
  return score_sample(find_metric("tool_loop"), {record, kGolden, extras});
}

/// The kind of step that one answer's call counts as.
std::string kind_of(const json& call, const std::string& answer = "text") {
  for (const auto& [name, share] : scored(json::array({{{"answer", answer}, {"call", call}}})).values) {
    if (share == 1) return name;
  }
  return "none";
}

json call(const std::string& name, const json& arguments) { return {{"name", name}, {"arguments", arguments}}; }

TEST(ToolLoopScore, TellsKindsOfFailureApart) {
  const json right = {{"guest", "Tom"}, {"room", 5}, {"item", "rug"}};
  const auto with = [&](const char* key, const json& value) {
    json changed = right;
    changed[key] = value;
    return changed;
  };
  EXPECT_EQ(kind_of(call("send", right)), "tool_loop_steps");
  EXPECT_EQ(kind_of(nullptr, "I will."), "tool_loop_missing");
  EXPECT_EQ(kind_of(nullptr, ""), "tool_loop_missing");
  EXPECT_EQ(kind_of(nullptr, "send(guest="), "tool_loop_malformed");
  EXPECT_EQ(kind_of(nullptr, R"({"name": "send")"), "tool_loop_malformed");
  EXPECT_EQ(kind_of(call("move", right)), "tool_loop_wrong_tool");
  EXPECT_EQ(kind_of(call("send", with("room", 3))), "tool_loop_stale");
  EXPECT_EQ(kind_of(call("send", with("room", 4))), "tool_loop_stale");
  EXPECT_EQ(kind_of(call("send", with("room", 6))), "tool_loop_wrong_argument");
  EXPECT_EQ(kind_of(call("send", with("room", "5"))), "tool_loop_wrong_argument");
  EXPECT_EQ(kind_of(call("send", with("guest", "Tim"))), "tool_loop_wrong_argument");
  json two = with("room", 3);
  two["item"] = "lamp";
  EXPECT_EQ(kind_of(call("send", two)), "tool_loop_wrong_argument") << "one value was never right";
  EXPECT_EQ(kind_of(call("send", with("floor", 1))), "tool_loop_wrong_argument");
  EXPECT_EQ(kind_of(call("send", {{"guest", "Tom"}, {"room", 3}})), "tool_loop_wrong_argument");
}

TEST(ToolLoopScore, JudgesTheStateAtTheEndWhateverTheSteps) {
  const MetricScore none = scored(json::array(), kExtras["state"]);
  EXPECT_EQ(none.score, 1);
  EXPECT_EQ(none.values.at("tool_loop_missing"), 1) << "steps that were not reached";
  EXPECT_EQ(scored(json::array({{{"answer", "x"}, {"call", json::parse(kGolden[0])}}})).score, 0);
}

TEST(ToolLoopScore, SaysWhatItNeeds) {
  const auto refusal = [](const std::string& prediction, const json& extras) {
    return testing::error_of([&] { (void)score_sample(find_metric("tool_loop"), {prediction, kGolden, extras}); });
  };
  const std::string record = R"({"steps": [], "state": {}})";
  EXPECT_NE(refusal("send(guest=1)", kExtras).find("prediction"), std::string::npos);
  EXPECT_NE(refusal(record, json::parse(R"({"stale": [{}]})")).find("\"state\""), std::string::npos);
  EXPECT_NE(refusal(record, json::parse(R"({"stale": [], "state": 1})")).find("extras.stale"), std::string::npos);
}

}  // namespace
}  // namespace kvarena::metrics
