#include "harness/cli/option_set.h"

#include <gtest/gtest.h>

#include "harness/core/error.h"

namespace kvarena::cli {
namespace {

struct Everything {
  bool json = false;
  std::string model = "small";
  int64_t limit = 3;
  double margin = 0.5;
  std::optional<int64_t> seed;
  std::vector<std::string> set;
  std::string config;
  std::optional<std::filesystem::path> out;

  OptionSet declared() {
    OptionSet o;
    o.positional("CONFIG", config).help("the config to run");
    o.positional("OUT", out);
    o.flag("json", json);
    o.option("model", "NAME", model).choices({"small", "large"});
    o.option("limit", "N", limit);
    o.option("margin", "X", margin);
    o.option("seed", "N", seed);
    o.option("set", "KEY=VALUE", set);
    return o;
  }
};

const Option& named(const OptionSet& set, const std::string& name) {
  for (const Option& option : set.all()) {
    if (option.name == name) return option;
  }
  throw std::out_of_range(name);
}

std::string refusal(const Option& option, const std::vector<std::string>& values) {
  try {
    assign(option, values);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(OptionSet, FillsTargetsOfEveryKind) {
  Everything e;
  const OptionSet set = e.declared();
  assign(named(set, "json"), {"true"});
  assign(named(set, "model"), {"large"});
  assign(named(set, "limit"), {"-7"});
  assign(named(set, "margin"), {"2.5e-1"});
  assign(named(set, "seed"), {"11"});
  assign(named(set, "set"), {"a=1", "b=[1,2]"});
  assign(named(set, "CONFIG"), {"run.json"});
  assign(named(set, "OUT"), {"there/report.html"});
  EXPECT_TRUE(e.json);
  EXPECT_EQ(e.model, "large");
  EXPECT_EQ(e.limit, -7);
  EXPECT_EQ(e.margin, 0.25);
  EXPECT_EQ(e.seed, 11);
  EXPECT_EQ(e.set, (std::vector<std::string>{"a=1", "b=[1,2]"}));
  EXPECT_EQ(e.config, "run.json");
  EXPECT_EQ(e.out, "there/report.html");
}

TEST(OptionSet, LeavesDefaultsWhereNothingWasWritten) {
  Everything e;
  const OptionSet set = e.declared();
  for (const Option& option : set.all()) {
    if (!option.required) assign(option, {});
  }
  EXPECT_EQ(e.model, "small");
  EXPECT_EQ(e.limit, 3);
  EXPECT_FALSE(e.seed.has_value());
  EXPECT_EQ(named(set, "limit").default_text, "3");
  EXPECT_EQ(named(set, "margin").default_text, "0.5");
  EXPECT_EQ(named(set, "seed").default_text, "");
}

TEST(OptionSet, RequiresAPositionalUnlessItsTargetMayBeAbsent) {
  Everything e;
  const OptionSet set = e.declared();
  EXPECT_TRUE(named(set, "CONFIG").required);
  EXPECT_FALSE(named(set, "OUT").required);
  EXPECT_EQ(refusal(named(set, "CONFIG"), {}), "CONFIG: found nothing, expected the config to run");
}

TEST(OptionSet, NamesOptionFoundAndExpected) {
  Everything e;
  const OptionSet set = e.declared();
  EXPECT_EQ(refusal(named(set, "limit"), {"12x"}), "--limit: found \"12x\", expected an integer");
  EXPECT_EQ(refusal(named(set, "limit"), {"99999999999999999999"}),
            "--limit: found \"99999999999999999999\", expected an integer");
  EXPECT_EQ(refusal(named(set, "margin"), {""}), "--margin: found \"\", expected a number");
  EXPECT_EQ(refusal(named(set, "margin"), {"inf"}), "--margin: found \"inf\", expected a finite number");
  EXPECT_EQ(refusal(named(set, "model"), {"smal"}),
            "--model: found \"smal\", expected one of: small, large; did you mean \"small\"?");
  EXPECT_EQ(refusal(named(set, "json"), {"no"}),
            "--json: found \"no\", expected no value: the option alone turns it on");
  EXPECT_EQ(refusal(named(set, "seed"), {"1", "2"}), "--seed: found 2 values, expected it once");
}

}  // namespace
}  // namespace kvarena::cli
