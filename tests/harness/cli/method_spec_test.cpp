#include "harness/cli/method_spec.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

std::string refusal(const std::string& text) {
  try {
    (void)parse_method_spec(text, "--method");
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(MethodSpec, ShortFormsMeanWhatTheirJsonSays) {
  const std::vector<std::pair<std::string, std::string>> pairs{
      {"full", R"({"name": "full"})"},
      {"snapkv:keep=0.25,window=32", R"({"name": "snapkv", "keep": 0.25, "window": 32})"},
      {" snapkv : keep = .5 , pool = max ", R"({"name": "snapkv", "keep": 0.5, "pool": "max"})"},
      {"vericache:draft_length=8,drafter=(snapkv:keep=0.25)",
       R"({"name": "vericache", "draft_length": 8, "drafter": {"name": "snapkv", "keep": 0.25}})"},
      {"a:b=(c:d=(e),f=1),g=2", R"({"name":"a","b":{"name":"c","d":{"name":"e"},"f":1},"g":2})"},
      {"m:layers=[1,2, 3],none=[]", R"({"name": "m", "layers": [1, 2, 3], "none": []})"},
      {"m:on=true,off=false,nothing=null,n=-3,x=1e-3",
       R"({"name": "m", "on": true, "off": false, "nothing": null, "n": -3, "x": 0.001})"},
      {R"(m:text="a,b (c) \"d\"",more=1)", R"({"name": "m", "text": "a,b (c) \"d\"", "more": 1})"},
      {R"(m:text="12",word=12a,inf=inf)", R"({"name": "m", "text": "12", "word": "12a", "inf": "inf"})"},
  };
  for (const auto& [text, expected] : pairs) {
    EXPECT_EQ(parse_method_spec(text, "--method"), json::parse(expected)) << text;
  }
}

TEST(MethodSpec, JsonIsTakenAsItIs) {
  const std::string text = R"(  {"name": "kivi", "bits": 2, "nested": {"name": "x"}})";
  EXPECT_EQ(parse_method_spec(text, "--method"), json::parse(text));
}

TEST(MethodSpec, IntegersStayIntegers) {
  EXPECT_TRUE(parse_method_spec("m:n=64", "--method").at("n").is_number_integer());
  EXPECT_TRUE(parse_method_spec("m:n=64.0", "--method").at("n").is_number_float());
}

TEST(MethodSpec, ErrorsShowWhereTheyStopped) {
  EXPECT_EQ(refusal("snapkv:keep"),
            "--method: character 12 of \"snapkv:keep\": found the end, expected \"=\" and a value; "
            "write NAME:key=value,key=value or JSON");
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"", "a method's name"},
           {":keep=1", "a method's name"},
           {"a:", "a setting's name"},
           {"a:b=", "a value"},
           {"a:b=1,", "a setting's name"},
           {"a:b=1,b=2", "each setting once"},
           {"a:name=b", "each setting once"},
           {"a:b=(c", "\")\""},
           {"a:b=[1", "\",\" or \"]\""},
           {"a:b=1)", "\",\" or the end"},
           {"a:b=\"c", "a closing quote"},
           {"a:b=\"c\\", "a closing quote"},
           {"a:b=\"\\q\"", "a string with JSON's escapes"},
       }) {
    EXPECT_NE(refusal(text).find("expected " + expected + ";"), std::string::npos) << text << " -> " << refusal(text);
  }
}

TEST(MethodSpec, BrokenJsonIsShown) {
  EXPECT_NE(refusal("{\"name\": }").find("--method: byte 10"), std::string::npos) << refusal("{\"name\": }");
}

TEST(MethodSpec, RefusesDepthThatNoMethodHas) {
  std::string deep;
  for (int i = 0; i < 50'000; ++i) deep += "a:b=(";
  EXPECT_NE(refusal(deep).find("32 levels"), std::string::npos);
}

}  // namespace
}  // namespace kvarena::cli
