// Segmentation, patches, call expressions and a judge's question against the programs they stand for; fixtures by
// tests/golden/metrics_make_formats.py and metrics_needle_judge.py.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "metrics/algorithms/bfcl_checker.h"
#include "metrics/algorithms/jieba.h"
#include "metrics/algorithms/patches.h"
#include "metrics/algorithms/python_ast.h"
#include "metrics/algorithms/python_calls.h"
#include "metrics/algorithms/regex.h"
#include "metrics/judge_prompt.h"
#include "metrics/registry.h"
#include "tests/support/compared.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

json fixture(const std::string& name) {
  return json::parse(read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden" / name));
}

TEST(JudgedNeedle, QuestionAndMarksAreLangChains) {
  const json rows = fixture("metrics_needle_judge.json");
  testing::compared_scores("judged_needle", rows.size());
  for (const auto& row : rows) {
    const auto text = [&](const char* name) { return row.at(name).get<std::string>(); };
    EXPECT_EQ(kNeedleQuestion.system, text("system"));
    EXPECT_EQ(judge_prompt(kNeedleQuestion.text, {text("question"), text("response"), text("needle")}), text("asked"));
    const MetricScore found = score_sample(find_metric("judged_needle"), {text("judge"), {}, json::object()});
    EXPECT_EQ(found.values.at("parsed"), row.at("mark").is_null() ? 0.0 : 1.0) << text("judge");
    if (!row.at("mark").is_null()) {
      EXPECT_EQ(found.values.at("mark"), row.at("mark").get<double>());
    }
  }
}

TEST(Jieba, CutsAsThePythonPackage) {
  if (!std::filesystem::exists(jieba_folder() / "dict.txt")) GTEST_SKIP() << "no jieba data in " << jieba_folder();
  for (const json& row : fixture("metrics_jieba.json")) {
    const auto expected = row.get<std::vector<std::string>>();
    std::string text;
    for (const std::string& word : expected) text += word;
    EXPECT_EQ(jieba().cut(text), expected) << text;
  }
}

TEST(Jieba, AMissingOrBrokenDictionaryIsSaidWithWhatToDo) {
  const auto folder = std::filesystem::temp_directory_path() / "kvarena_jieba_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto message = [&] {
    try {
      const Jieba loaded(folder);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message().find("dict.txt"), std::string::npos);
  EXPECT_NE(message().find("scripts/setup"), std::string::npos);
  std::ofstream(folder / "dict.txt") << "港口 3 n\nharbour\n";
  EXPECT_NE(message().find("line 2"), std::string::npos) << message();
  std::ofstream(folder / "dict.txt") << "港口 3 n\n";
  EXPECT_NE(message().find("prob_emit.py"), std::string::npos) << message();
}

TEST(Jieba, ReadsEveryWordOfItsDictionary) {
  const auto folder = std::filesystem::temp_directory_path() / "kvarena_jieba_words_test";
  std::filesystem::create_directories(folder / "finalseg");
  std::ofstream(folder / "dict.txt") << "港口 3 n\n城市 5 n\n";
  // Whatever is no word of the dictionary is cut into single characters.
  std::ofstream(folder / "finalseg" / "prob_emit.py")
      << R"(P={'B': {'\u4e00': -1.0}, 'E': {'\u4e00': -1.0}, 'M': {'\u4e00': -1.0},)"
      << R"( 'S': {'\u6e2f': -1.0, '\u53e3': -1.0, '\u57ce': -1.0, '\u5e02': -1.0}})";
  EXPECT_EQ(Jieba(folder).cut("港口城市港市"), (std::vector<std::string>{"港口", "城市", "港", "市"}));
}

TEST(PythonUnparse, ControlCharactersAreEscaped) {
  const auto list = python::parse_list("['a\\x01\\x7f\\n']");
  ASSERT_TRUE(list.has_value());
  EXPECT_EQ(python::unparse(list->front()), R"('a\x01\x7f\n')");
}

TEST(PythonLexer, AnEscapeMayStandAtTheVeryBeginning) {
  const auto list = python::parse_list("['\\U0001F600']");
  ASSERT_TRUE(list.has_value());
  EXPECT_EQ(list->front().value.string, "😀");
  EXPECT_FALSE(python::parse_list("['\\U0001F60").has_value());
}

TEST(Patches, GitAndUnidiffVerdictsOnDamagedPatchesAreReproduced) {
  const json rows = fixture("metrics_patches.json");
  testing::compared_scores("git_diff_format", rows.size());
  for (const json& row : rows) {
    const auto text = row[0].get<std::string>();
    SCOPED_TRACE(text);
    const NumstatReport git = git_numstat(text);
    EXPECT_EQ(git.exit_code, row[1].get<int>());
    EXPECT_EQ(git.output, row[2].get<std::string>());
    const UnidiffReport unidiff = parse_unidiff(text);
    EXPECT_EQ(unidiff.parses, !row[3].is_null());
    if (row[3].is_null()) continue;
    EXPECT_EQ(json({unidiff.files, unidiff.hunks, unidiff.added, unidiff.removed}), row[3]);
  }
}

// ["int", 1], ["tuple", [...]], ["dict", [[key, value], ...]] as the fixture has it.
json typed(const PythonValue& value) {
  const auto list = [](const std::vector<PythonValue>& items) {
    json out = json::array();
    for (const PythonValue& item : items) out.push_back(typed(item));
    return out;
  };
  switch (value.type) {
    case PythonValue::Type::none: return json::array({"NoneType", nullptr});
    case PythonValue::Type::boolean: return json::array({"bool", value.boolean});
    case PythonValue::Type::integer: return json::array({"int", value.integer});
    case PythonValue::Type::real:
      return json::array({"float", std::isinf(value.real) ? json("inf") : json(value.real)});
    case PythonValue::Type::string: return json::array({"str", value.string});
    case PythonValue::Type::list: return json::array({"list", list(value.items)});
    case PythonValue::Type::tuple: return json::array({"tuple", list(value.items)});
    case PythonValue::Type::dict: break;
  }
  json entries = json::array();
  for (const auto& [key, item] : value.entries) entries.push_back(json::array({typed(key), typed(item)}));
  return json::array({"dict", std::move(entries)});
}

json typed(const PythonCall& call) {
  json arguments = json::array();
  for (const auto& [name, value] : call.arguments) {
    arguments.push_back(json::array({json::array({"str", name}), typed(value)}));
  }
  return json::array(
      {"dict",
       json::array({json::array({json::array({"str", call.name}), json::array({"dict", std::move(arguments)})})})});
}

TEST(PythonCalls, AreReadAsPythonAndBfclsResolverReadThem) {
  for (const json& row : fixture("metrics_python_calls.json")) {
    const auto text = row[0].get<std::string>();
    const auto calls = parse_python_calls(text);
    ASSERT_EQ(calls.has_value(), !row[1].is_null()) << text;
    if (!calls) continue;
    json found = json::array();
    for (const PythonCall& call : *calls) found.push_back(typed(call));
    EXPECT_EQ(found, row[1]) << text;
  }
}

TEST(PythonCalls, ShiftsBeyond64BitsAreBigIntegers) {
  const auto calls = parse_python_calls("f(a=1<<63, b=3<<62, c=-1<<64, d=1<<999999999999)");
  ASSERT_TRUE(calls.has_value());
  const std::vector<double> expected = {0x1p63, 0x3p62, -0x1p64, std::numeric_limits<double>::infinity()};
  for (size_t i = 0; i < expected.size(); ++i) {
    const PythonValue& value = calls->front().arguments[i].second;
    EXPECT_TRUE(value.big) << i;
    EXPECT_EQ(value.real, expected[i]) << i;
  }
}

TEST(PythonCalls, HostileTextIsRefusedWithoutCrashing) {
  for (const std::string& text :
       {std::string(100000, '('), std::string(100000, '['), std::string("f(a=") + std::string(100000, '-'),
        std::string("f(a='") + std::string(1000, '\\'), std::string("f(a='\xff\xfe')"),
        std::string("f(a=9") + std::string(5000, '9') + "**9)", std::string("f(a=9**9**9**9)"),
        std::string("f(a='x'*99999999999)"), std::string("f(a=\0)", 6)}) {
    (void)parse_python_calls(text);
  }
  EXPECT_FALSE(parse_python_calls(std::string("f(a=") + std::string(300, '(') + "1" + std::string(300, ')') + ")"));
}

TEST(PythonCalls, ChainsTooLongToWalkAreRefused) {
  const auto chain = [](const std::string& link, int n) {
    std::string text = "f(a=1";
    for (int i = 0; i < n; ++i) text += link;
    return text + ")";
  };
  EXPECT_TRUE(parse_python_calls(chain("+1", 1000)));
  EXPECT_FALSE(parse_python_calls(chain("+1", 200000)));
  EXPECT_FALSE(parse_python_calls(chain(".x", 200000)));
  EXPECT_FALSE(parse_python_calls(chain("[0]", 200000)));
}

TEST(BfclMultiTurn, ReadsTheVerdictOfAConversation) {
  const std::vector<std::string> calls = {"[]"};
  const json none = json::object();
  const auto scored = [&](const std::string& record) {
    return score_sample(find_metric("bfcl_multi_turn"), {record, calls, none});
  };
  EXPECT_EQ(scored(R"({"valid": true, "error": "", "result": []})").score, 1);
  const MetricScore wrong = scored(R"({"valid": false, "error": "multi_turn:instance_state_mismatch", "result": []})");
  EXPECT_EQ(wrong.score, 0);
  EXPECT_EQ(wrong.notes.at("error"), "multi_turn:instance_state_mismatch");
  for (const char* record : {"", "[cd(folder='a')]", "{}", R"({"valid": "yes"})"}) {
    EXPECT_THROW((void)scored(record), UserError) << record;
  }
}

TEST(BfclMemory, GivesTheShareOfQuestionsWithARightVerdict) {
  const std::vector<std::string> accepted = {"[]"};
  const json none = json::object();
  const auto scored = [&](const std::string& record) {
    return score_sample(find_metric("bfcl_memory"), {record, accepted, none});
  };
  const MetricScore half = scored(R"({"questions": [{"id": "a", "valid": true}, {"id": "b", "valid": false}]})");
  EXPECT_EQ(half.score, 0.5);
  EXPECT_EQ(half.values.at("right"), 1);
  EXPECT_EQ(half.values.at("questions"), 2);
  for (const char* record : {"", "{}", R"({"questions": []})", R"({"valid": true})"}) {
    EXPECT_THROW((void)scored(record), UserError) << record;
  }
}

TEST(BfclChecker, RefusesEntriesOfAnotherForm) {
  const auto calls = *parse_python_calls("f(a=1)");
  const json functions = {{{"name", "f"}, {"parameters", {{"properties", {{"a", {{"type", "integer"}}}}}}}}};
  EXPECT_EQ(check_bfcl_calls(functions, calls, json::parse(R"([{"f": {"a": [1]}}])"), "simple_python"), std::nullopt);
  EXPECT_THROW((void)check_bfcl_calls(functions, calls, json::array(), "simple_python"), UserError);
  EXPECT_THROW((void)check_bfcl_calls(functions, calls, json::parse(R"([{"g": {"a": [1]}}])"), "multiple"), UserError);
  const json odd = {{{"name", "f"}, {"parameters", {{"properties", {{"a", {{"type", "quaternion"}}}}}}}}};
  EXPECT_THROW((void)check_bfcl_calls(odd, calls, json::parse(R"([{"f": {"a": [1]}}])"), "simple_python"), UserError);
}

TEST(Regex, FindsAllMatchesAsPythonsFinditer) {
  const auto texts = [](const Regex& regex, std::string_view text) {
    std::vector<std::string> out;
    for (const auto& match : regex.find_all(text)) out.emplace_back(match[0]);
    return out;
  };
  EXPECT_EQ(texts(Regex("x*"), "axb"), (std::vector<std::string>{"", "x", "", ""}));
  EXPECT_EQ(texts(Regex(R"(\d+)"), "a1b７８"), (std::vector<std::string>{"1", "７８"}));
  EXPECT_EQ(texts(Regex("(?<=:\n)(.*?)(?=\n\n|$)", Regex::Dot::matches_all), "a:\n\n\nb"),
            (std::vector<std::string>{"", "\n\nb"}));
  EXPECT_TRUE(Regex("a").find_all("\xff").empty());
}

}  // namespace
}  // namespace kvarena::metrics
