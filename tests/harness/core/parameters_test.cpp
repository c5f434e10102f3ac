#include "harness/core/parameters.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/core/nested.h"
#include "harness/core/random.h"

namespace kvarena {
namespace {

using nlohmann::json;

/// A component that takes any settings but those of a name "unknown".
struct Part {
  static std::unique_ptr<Part> build(const json& settings, const std::string& place,
                                     std::vector<std::string>& problems) {
    if (settings["name"] == "unknown") problems.push_back(place + ".name: found \"unknown\"");
    return std::make_unique<Part>();
  }
};

/// One of each type.
struct Component {
  bool deferred = false;
  int64_t window = 64;
  double keep = 0.5;
  std::string pool = "avg";
  std::vector<int64_t> layers = {0, 1};
  std::vector<double> depths;
  WordOrNumbers part = "all";
  std::optional<int64_t> tokens;
  std::optional<double> bytes;
  Nested<Part> scorer;

  void parameters(ParameterVisitor& p) {
    p("deferred", deferred).doc("rotate late");
    p("window", window).min(1).doc("queries that vote");
    p("keep", keep).above(0).max(1).doc("fraction kept");
    p("pool", pool).one_of({"avg", "max"});
    p("layers", layers).min(0);
    p("depths", depths).min(0).max(1);
    p("part", part).one_of({"all", "half"});
    p("tokens", tokens).min(1);
    p("bytes", bytes);
    p("scorer", scorer).required();
  }
  std::vector<std::string> read(const json& object) {
    return read_parameters(object, "m[0]", [this](ParameterVisitor& p) { parameters(p); });
  }
};

TEST(Parameters, DeclaredOnceAreListedWithTheirDefaults) {
  Component component;
  const auto infos = list_parameters([&](ParameterVisitor& p) { component.parameters(p); });
  ASSERT_EQ(infos.size(), 10U);
  std::vector<std::string> lines;
  for (const ParameterInfo& info : infos) lines.push_back(info.name + ": " + describe(info));
  EXPECT_EQ(lines,
            (std::vector<std::string>{
                "deferred: true or false, default false", "window: an integer at least 1, default 64",
                "keep: a number above 0 and at most 1, default 0.5", "pool: one of \"avg\", \"max\", default \"avg\"",
                "layers: a list of numbers at least 0, default [0,1]",
                "depths: a list of numbers at least 0 and at most 1, default []",
                R"(part: one of "all", "half", or a list of numbers, default "all")",
                "tokens: an integer at least 1, optional", "bytes: a number, optional",
                "scorer: a name, or an object with a \"name\", required"}));
  EXPECT_EQ(infos[1].doc, "queries that vote");
}

TEST(Parameters, EveryTypeIsRead) {
  Component c;
  EXPECT_TRUE(c.read(json::parse(R"({"name": "x", "deferred": true, "window": 3, "keep": 1, "pool": "max", "layers": [],
      "depths": [0, 0.5], "tokens": 7, "bytes": 2.5, "scorer": {"name": "snapkv", "window": 2}})"))
                  .empty());
  EXPECT_TRUE(c.deferred);
  EXPECT_EQ(c.window, 3);
  EXPECT_EQ(c.keep, 1.0);
  EXPECT_EQ(c.pool, "max");
  EXPECT_TRUE(c.layers.empty());
  EXPECT_EQ(c.depths, (std::vector<double>{0, 0.5}));
  EXPECT_EQ(c.tokens, 7);
  EXPECT_EQ(c.bytes, 2.5);
  EXPECT_EQ(json::parse(c.scorer.settings())["window"], 2);
  EXPECT_TRUE(c.read(json::parse(R"({"scorer": "snapkv", "part": "half"})")).empty());
  EXPECT_EQ(c.part, WordOrNumbers("half"));
  EXPECT_TRUE(c.read(json::parse(R"({"scorer": "snapkv", "part": [2, 5]})")).empty());
  EXPECT_EQ(c.part, WordOrNumbers(std::vector<int64_t>{2, 5}));
  EXPECT_EQ(json::parse(c.scorer.settings()), (json{{"name", "snapkv"}}));
}

TEST(Parameters, WhatIsNotGivenKeepsItsDefault) {
  Component c;
  EXPECT_TRUE(c.read(json::parse(R"({"scorer": {"name": "s"}})")).empty());
  EXPECT_EQ(c.window, 64);
  EXPECT_FALSE(c.tokens);
}

TEST(Parameters, EveryProblemIsReportedWithItsPlace) {
  Component c;
  const auto problems = c.read(json::parse(R"({"deferred": 1, "window": 0, "keep": 0, "pool": "mean", "layers": [1, -1],
      "depths": 0.5, "part": "none", "tokens": 1.5, "bytes": "many", "windw": 3})"));
  const std::vector<std::string> expected = {
      "m[0].bytes: found \"many\", expected a number",
      "m[0].deferred: found 1, expected true or false",
      "m[0].depths: found 0.5, expected a list of numbers at least 0 and at most 1",
      "m[0].keep: found 0, expected a number above 0 and at most 1",
      "m[0].layers: found [1,-1], expected a list of numbers at least 0",
      R"(m[0].part: found "none", expected one of "all", "half", or a list of numbers)",
      "m[0].pool: found \"mean\", expected one of \"avg\", \"max\"",
      "m[0].tokens: found 1.5, expected an integer at least 1",
      "m[0].window: found 0, expected an integer at least 1",
      "m[0].windw: found an unknown key, expected one of: deferred, window, keep, pool, layers, depths, part, tokens, "
      "bytes, scorer; did you mean \"window\"?",
      "m[0].scorer: found nothing, expected a name, or an object with a \"name\"; write {\"name\": METHOD, ...} in a "
      "config, (METHOD:setting=value) on a command line",
  };
  EXPECT_EQ(problems, expected);
}

TEST(Parameters, BordersAreInclusiveOrNotAsDeclared) {
  Component c;
  const auto fits = [&](const char* text) {
    json object = json::parse(text);
    object["scorer"] = {{"name", "s"}};
    return c.read(object).empty();
  };
  EXPECT_TRUE(fits(R"({"window": 1})"));
  EXPECT_TRUE(fits(R"({"keep": 1.0})"));
  EXPECT_FALSE(fits(R"({"keep": 0.0})"));
  EXPECT_TRUE(fits(R"({"keep": 1e-300})"));
  EXPECT_TRUE(fits(R"({"depths": [0, 1]})"));
  EXPECT_FALSE(fits(R"({"depths": [0, 1.0000001]})"));
}

TEST(Parameters, ANestedComponentNeedsAName) {
  Component c;
  for (const char* text : {R"({"scorer": {}})", R"({"scorer": 3})", R"({"scorer": {"name": 3}})"}) {
    EXPECT_EQ(c.read(json::parse(text)).size(), 1U) << text;
  }
}

TEST(Parameters, ProblemsOfANestedComponentHaveItsPlace) {
  Component c;
  EXPECT_EQ(c.read(json::parse(R"({"scorer": {"name": "unknown"}})")),
            (std::vector<std::string>{"m[0].scorer.name: found \"unknown\""}));
}

TEST(Parameters, ANestedComponentIsDerivedFromWhatWasRead) {
  int64_t window = 4;
  Nested<Part> part;
  const auto read = [&](const json& object) {
    return read_parameters(object, "m[0]", [&](ParameterVisitor& p) {
      p("window", window).min(1);
      p.derive(part, [&] { return json{{"name", window > 9 ? "unknown" : "known"}, {"window", window}}.dump(); });
    });
  };
  EXPECT_TRUE(read({{"window", 7}}).empty());
  EXPECT_EQ(part.settings(), R"({"name":"known","window":7})");
  EXPECT_EQ(read({{"window", 10}}), (std::vector<std::string>{"m[0].name: found \"unknown\""}));
  EXPECT_EQ(read({{"window", 0}}).size(), 1U);  // nothing is built on a problem
}

TEST(Parameters, IntegersThatDoNotFitAreRefusedNotWrapped) {
  Component c;
  const auto problems = c.read(json::parse(R"({"scorer": {"name": "s"}, "tokens": 18446744073709551615})"));
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("m[0].tokens: found 18446744073709551615"), std::string::npos) << problems[0];
  EXPECT_TRUE(c.read(json::parse(R"({"scorer": {"name": "s"}, "tokens": 9223372036854775807})")).empty());
  EXPECT_EQ(c.tokens, INT64_MAX);
}

TEST(Parameters, WhatIsNoObjectIsOneProblem) {
  Component c;
  for (const char* text : {"3", "\"full\"", "[]", "null"}) {
    ASSERT_EQ(c.read(json::parse(text)).size(), 1U) << text;
  }
  EXPECT_EQ(c.read(json::parse("[1]")).front(), "m[0]: found [1], expected an object");
}

TEST(Parameters, AnyJsonGivesMessagesAndNeverAnException) {
  const RandomStream random(5, "json values");
  const std::vector<json> values = {nullptr,  true,           -1,           0, 1.5, 1e308, "", "avg", json::array(),
                                    {1, "x"}, json::object(), {{"name", 1}}};
  const std::vector<std::string> keys = {"deferred", "window", "keep",  "pool",   "layers", "depths",
                                         "part",     "tokens", "bytes", "scorer", "other"};
  for (uint64_t i = 0; i < 3000; ++i) {
    json object = json::object();
    for (uint64_t k = 0; k < 4; ++k) {
      object[keys[random.below(keys.size(), i * 8 + k)]] = values[random.below(values.size(), i * 8 + 4 + k)];
    }
    Component c;
    EXPECT_NO_THROW((void)c.read(object)) << object.dump();
  }
}

}  // namespace
}  // namespace kvarena
