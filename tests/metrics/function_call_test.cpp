#include "metrics/functional/function_call.h"

#include <gtest/gtest.h>

#include "harness/core/error.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

FunctionCall call(const std::string& name, const json& arguments) { return {name, arguments}; }

const FunctionCall kSearch = call("Search_Hotels", {{"dest_id", "-100"}, {"adults", 2}});

TEST(ParseFunctionCalls, FindsCallsWhateverStandsAroundThem) {
  const std::string body = R"({"name": "Search_Hotels", "parameters": {"dest_id": "-100", "adults": 2}})";
  for (const std::string& text :
       {body, "<|python_tag|>" + body, "Sure, here is the call:\n```json\n" + body + "\n```\nDone.", "[" + body + "]",
        "<tool_call>\n" + body + "\n</tool_call>", "I use {braces} and [brackets] first. " + body, "{ " + body,
        std::string("Search_Hotels(dest_id=\"-100\", adults=2)"),
        std::string("[Search_Hotels(adults=2, dest_id='-100')]")}) {
    const auto calls = parse_function_calls(text);
    ASSERT_EQ(calls.size(), 1u) << text;
    EXPECT_TRUE(same_call(calls[0], kSearch)) << text;
  }
}

TEST(ParseFunctionCalls, ReadsSeveralCallsInOrder) {
  const auto calls =
      parse_function_calls(R"({"name": "a", "arguments": {}}; {"name": "b", "arguments": "{\"x\": 1}"})");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].name, "a");
  EXPECT_EQ(calls[1].name, "b");
  EXPECT_EQ(calls[1].arguments, json({{"x", 1}}));
}

TEST(ParseFunctionCalls, PlainTextAndBrokenJsonAreNoCalls) {
  for (const std::string& text :
       {std::string("The cheapest hotel is h7."), std::string(), std::string(R"({"name": "a", "arguments": {"x": 1)"),
        std::string(R"({"name": "a", "arguments": {"x": }})"), std::string(R"({"name": "a"})"),
        std::string(R"({"name": 3, "arguments": {}})"), std::string(R"({"name": "a", "arguments": [1]})"),
        std::string(100000, '['), std::string(100000, '{')}) {
    EXPECT_TRUE(parse_function_calls(text).empty()) << text.substr(0, 60);
  }
}

TEST(ParseFunctionCalls, DeeplyNestedNoiseIsSkippedInLinearTime) {
  const std::string noise = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_TRUE(parse_function_calls(noise).empty());
  const std::string call = R"({"name": "f", "arguments": {"x": 1}})";
  EXPECT_EQ(parse_function_calls(noise + call).size(), 1u);
  const std::string deep = R"({"name": "f", "arguments": {"x": )" + noise + "}}";
  EXPECT_TRUE(parse_function_calls(deep).empty());
}

TEST(SameCall, IsStrictOnNamesArgumentSetsAndValues) {
  EXPECT_TRUE(same_call(call("Search_Hotels", {{"adults", 2.0}, {"dest_id", "-100"}}), kSearch));
  EXPECT_EQ(why_not_same(call("search_hotels", kSearch.arguments), kSearch), CallError::name_error);
  EXPECT_EQ(why_not_same(call("Search_Hotels", {{"dest_id", "-100"}}), kSearch), CallError::param_missing);
  EXPECT_EQ(why_not_same(call("Search_Hotels", {{"dest_id", "-100"}, {"adults", "2"}}), kSearch),
            CallError::value_error);
  EXPECT_EQ(why_not_same(call("Search_Hotels", {{"dest_id", "-100"}, {"adults", 2}, {"rooms", 1}}), kSearch),
            CallError::param_hallucination);
}

TEST(SameCall, ComparesNestedValuesAndFiltersAsSets) {
  const auto golden = call("f", {{"categories_filter", "b,a"}, {"list", {1, {{"x", nullptr}}}}});
  EXPECT_TRUE(same_call(call("f", {{"categories_filter", "a, b"}, {"list", {true, {{"x", nullptr}}}}}), golden));
  EXPECT_FALSE(same_call(call("f", {{"categories_filter", "a"}, {"list", {1, {{"x", nullptr}}}}}), golden));
  EXPECT_FALSE(same_call(call("f", {{"categories_filter", "a,b"}, {"list", {1, {{"x", 0}}}}}), golden));
}

TEST(PairCalls, PrefersEqualThenSameNameThenMostArguments) {
  const std::vector<FunctionCall> golden = {call("f", {{"a", 1}, {"b", 2}}), call("f", {{"a", 5}, {"b", 6}}),
                                            call("g", json::object())};
  const std::vector<FunctionCall> predicted = {call("f", {{"a", 5}, {"b", 7}}), call("h", json::object()),
                                               call("f", {{"a", 1}, {"b", 2}})};
  const auto pairs = pair_calls(predicted, golden);
  ASSERT_EQ(pairs.size(), 3u);
  EXPECT_EQ(pairs[0].predicted, 2);
  EXPECT_EQ(pairs[0].error, CallError::none);
  EXPECT_EQ(pairs[1].predicted, 0);
  EXPECT_EQ(pairs[1].error, CallError::value_error);
  EXPECT_EQ(pairs[2].predicted, 1);
  EXPECT_EQ(pairs[2].error, CallError::name_error);
}

TEST(ExactCallAccuracy, CountsGoldenCallsFound) {
  const auto& metric = find_metric("exact_call_accuracy");
  const json extras = {
      {"golden_calls", {{{"name", "f"}, {"arguments", {{"x", 1}}}}, {{"name", "g"}, {"arguments", json::object()}}}}};
  const auto score = score_sample(
      metric, {R"({"name": "f", "arguments": {"x": 1}} {"name": "g", "arguments": {"y": 1}})", {}, extras});
  EXPECT_EQ(score.score, 0.5);
  EXPECT_EQ(score.values.at("correct_calls"), 1);
  EXPECT_EQ(score.values.at("golden_calls"), 2);
  EXPECT_EQ(score.notes.at("error"), "param_hallucination");
  EXPECT_EQ(score_sample(metric, {"plain text", {}, extras}).notes.at("error"), "missing_call");
}

TEST(ExactCallAccuracy, ReadsGoldenCallsFromReferencesToo) {
  const auto& metric = find_metric("exact_call_accuracy");
  const std::vector<std::string> references = {R"([{"name": "f", "arguments": {"x": 1}}])"};
  const json none = json::object();
  EXPECT_EQ(score_sample(metric, {"[f(x=1)]", references, none}).score, 1.0);
  EXPECT_EQ(score_sample(metric, {"f(x='1')", references, none}).score, 0.0);
  const std::vector<std::string> broken = {"not a call"};
  EXPECT_THROW((void)score_sample(metric, {"[f(x=1)]", broken, none}), UserError);
}

TEST(ExactCallAccuracy, ArithmeticInArgumentsIsPythons) {
  const auto& metric = find_metric("exact_call_accuracy");
  const std::vector<std::string> references = {R"([{"name": "f", "arguments": {"x": 8.0}}])"};
  EXPECT_EQ(score_sample(metric, {"[f(x=2.0 ** 3)]", references, json::object()}).score, 1.0);
  EXPECT_EQ(score_sample(metric, {"[f(x=3.0 ** 2)]", references, json::object()}).score, 0.0);
}

TEST(ExactCallAccuracy, AStepWithoutGoldenCallsWantsNone) {
  const auto& metric = find_metric("exact_call_accuracy");
  const json none = json::object();
  EXPECT_EQ(score_sample(metric, {"The hotel is h7.", {}, none}).score, 1.0);
  EXPECT_EQ(score_sample(metric, {"[f(x=1)]", {}, none}).score, 0.0);
}

}  // namespace
}  // namespace kvarena::metrics
