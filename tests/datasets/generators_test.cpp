#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <set>
#include <sstream>

#include "datasets/texts/functions.h"
#include "datasets/texts/worlds.h"
#include "tests/datasets/support.h"
#include "tests/datasets/word_tokens.h"

namespace kvarena::datasets {
namespace {

size_t count_of(const std::string& text, const std::string& piece) {
  size_t count = 0;
  for (size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++count;
  return count;
}

std::string prompt_text(const Sample& sample) {
  std::string text;
  for (const Message& message : sample.messages) text.append(message.content).append("\n");
  return text;
}

class Quickstart : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Generators, Quickstart, ::testing::Values("needle", "fact_qa", "function_calling"));

TEST_P(Quickstart, MakesTheSameSamplesTwiceAndOthersForAnotherSeed) {
  const auto first = all_samples(GetParam());
  const auto again = all_samples(GetParam());
  const auto other = all_samples(GetParam(), R"({"seed": 2})");
  ASSERT_EQ(first.size(), static_cast<size_t>(find_workload(GetParam(), "test").info.samples));
  std::set<std::string> ids;
  std::set<std::string> hashes;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].prompt_sha256, again[i].prompt_sha256);
    EXPECT_EQ(first[i].references, again[i].references);
    EXPECT_NE(first[i].prompt_sha256, other[i].prompt_sha256);
    ids.insert(first[i].id);
    hashes.insert(first[i].prompt_sha256);
  }
  EXPECT_EQ(ids.size(), first.size());
  EXPECT_EQ(hashes.size(), first.size());
}

TEST_P(Quickstart, ALongerRunBeginsWithTheShorterOne) {
  const auto few = all_samples(GetParam(), R"({"samples": 3})");
  const auto many = all_samples(GetParam(), R"({"samples": 9})");
  ASSERT_EQ(few.size(), 3u);
  for (size_t i = 0; i < few.size(); ++i) EXPECT_EQ(few[i].prompt_sha256, many[i].prompt_sha256);
}

TEST_P(Quickstart, FitsAWindowOf2048Tokens) {
  const WordTokens tokens;
  for (const Sample& sample : all_samples(GetParam())) {
    EXPECT_LT(tokens.encode(prompt_text(sample)).size() + static_cast<size_t>(sample.generation.max_new_tokens), 1500u);
    EXPECT_LE(sample.generation.max_new_tokens, 48);
  }
}

TEST(Needle, IsHiddenOnceAtItsDepthBeforeTheQuestion) {
  for (const Sample& sample : all_samples("needle")) {
    const auto extras = nlohmann::json::parse(sample.extras);
    const std::string& text = sample.messages[0].content;
    EXPECT_EQ(count_of(text, sample.references[0]), 1u) << sample.id;
    EXPECT_EQ(question_text(sample).find(sample.references[0]), std::string::npos);
    const double share = 100.0 * static_cast<double>(text.find(extras["needle"].get<std::string>())) /
                         static_cast<double>(sample.question.byte);
    EXPECT_NEAR(share, extras["depth_percent"], 12) << sample.id;
    EXPECT_NEAR(static_cast<double>(count_of(text, " ")), extras["words"], 60) << sample.id;
  }
}

TEST(Needle, RefusesDepthsOutsideOfTheText) {
  EXPECT_NE(error_of([] { (void)make_workload("needle", R"({"depths": [101]})", "c"); }).find("c: depths: found 101"),
            std::string::npos);
  EXPECT_FALSE(error_of([] { (void)make_workload("needle", R"({"words": []})", "c"); }).empty());
}

TEST(FactQa, TheContextAnswersTheQuestionExactlyOnce) {
  for (const Sample& sample : all_samples("fact_qa")) {
    const std::string context = sample.messages[0].content.substr(0, sample.question.byte);
    const std::string question = question_text(sample);
    const std::string thing = nlohmann::json::parse(sample.extras)["thing"];
    EXPECT_TRUE(question.ends_with("\nAnswer:"));
    const std::string last = question.substr(question.rfind("Question: "));
    EXPECT_NE(last.find(thing), std::string::npos) << last;
    size_t sentences = 0;
    for (size_t at = context.find(thing); at != std::string::npos; at = context.find(thing, at + 1)) {
      const size_t end = context.find('.', at);
      if (context.substr(at, end - at).find(fmt::format(" {}", sample.references[0])) != std::string::npos) ++sentences;
    }
    EXPECT_EQ(sentences, 1u) << sample.id;
  }
}

TEST(FactQa, ExamplesAreAboutOtherThingsAndTrue) {
  for (const Sample& sample : all_samples("fact_qa")) {
    const std::string thing = nlohmann::json::parse(sample.extras)["thing"];
    const std::string question = question_text(sample);
    const std::string examples = question.substr(0, question.rfind("Question: "));
    EXPECT_EQ(examples.find(thing), std::string::npos);
    EXPECT_GT(count_of(examples, "Answer: "), 0u);
  }
}

TEST(ArithmeticChain, EveryLineGoesOnFromTheLastOneAndFollowsThePrompt) {
  const auto samples =
      all_samples("arithmetic_chain", R"({"operations": "listed", "steps": 60, "largest": 50, "samples": 8})");
  ASSERT_EQ(samples.size(), 8u);
  for (const Sample& sample : samples) {
    ASSERT_EQ(sample.references.size(), 60u);
    const std::string question = question_text(sample);
    ASSERT_TRUE(question.starts_with("Task: start with "));
    int64_t value = std::stoll(question.substr(std::string("Task: start with ").size()));
    std::string operations;
    for (const std::string& line : sample.references) {
      int64_t from = 0, by = 0, to = 0;
      char sign = 0;
      ASSERT_EQ(std::sscanf(line.c_str(), "%ld %c %ld = %ld", &from, &sign, &by, &to), 4) << line;
      EXPECT_EQ(from, value);
      EXPECT_EQ(to, sign == '+' ? from + by : from - by);
      EXPECT_TRUE(to >= 1 && to <= 50) << line;
      operations += fmt::format(", {} {}", sign, by);
      value = to;
    }
    EXPECT_NE(question.find(operations + "\n"), std::string::npos);
    EXPECT_EQ(count_of(sample.messages[0].content, "Task: "), 3u);
  }
}

TEST(ArithmeticChain, TheSameOperationIsOnEveryLine) {
  for (const Sample& sample : all_samples("arithmetic_chain")) {
    int64_t start = 0, by = 0, lines = 0;
    const std::string question = question_text(sample);
    ASSERT_EQ(std::sscanf(question.c_str(), "Task: start with %ld, + %ld on each of %ld lines", &start, &by, &lines),
              3);
    ASSERT_EQ(sample.references.size(), static_cast<size_t>(lines));
    for (const std::string& line : sample.references) {
      EXPECT_EQ(line, fmt::format("{} + {} = {}", start, by, start + by));
      start += by;
    }
    EXPECT_LE(start, 300);
  }
  EXPECT_FALSE(error_of([] { (void)make_workload("arithmetic_chain", R"({"steps": 300})", "c"); }).empty());
}

TEST(StateChain, EveryLineTellsTheStateAfterOneMoreSwap) {
  const auto samples = all_samples("state_chain", R"({"places": 4, "steps": 30, "samples": 8})");
  ASSERT_EQ(samples.size(), 8u);
  for (const Sample& sample : samples) {
    ASSERT_EQ(sample.references.size(), 30u);
    const std::string question = question_text(sample);
    std::array<char[8], 4> things{};  // in places A to D
    ASSERT_EQ(std::sscanf(question.c_str(), "Task: A %7[a-z], B %7[a-z], C %7[a-z], D %7[a-z];", things[0], things[1],
                          things[2], things[3]),
              4)
        << question;
    std::vector<std::string> held(things.begin(), things.end());
    std::string swaps;
    for (int step = 1; step <= 30; ++step) {
      const std::string& line = sample.references[static_cast<size_t>(step) - 1];
      char one = 0, other = 0;
      int told = 0;
      ASSERT_EQ(std::sscanf(line.c_str(), "step %d swap %c %c:", &told, &one, &other), 3) << line;
      EXPECT_EQ(told, step);
      std::swap(held.at(static_cast<size_t>(one - 'A')), held.at(static_cast<size_t>(other - 'A')));
      const std::string asked = fmt::format("step {} swap {} {}", step, one, other);
      EXPECT_EQ(line, fmt::format("{}: A {}, B {}, C {}, D {}", asked, held[0], held[1], held[2], held[3]));
      swaps += "; " + asked;
    }
    EXPECT_NE(question.find(swaps + "\n"), std::string::npos);
    EXPECT_EQ(count_of(sample.messages[0].content, "Task: "), 3u);
  }
}

TEST(World, NoTwoThingsShareAnAnswer) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Draw draw(seed, "test");
    const auto world = make_world(draw, kMaxThings);
    std::set<std::string> names;
    for (size_t sort = 0; sort < 2; ++sort) {
      std::set<std::string> answers;
      for (const Thing& thing : world) answers.insert(thing.facts.at(sort).answer);
      EXPECT_EQ(answers.size(), world.size()) << "seed " << seed;
    }
    for (const Thing& thing : world) names.insert(thing.name);
    EXPECT_EQ(names.size(), world.size());
  }
}

TEST(FunctionCatalogue, HasAtLeast40DifferentFunctionsInEightDomains) {
  std::set<std::string_view> names;
  std::set<std::string_view> domains;
  for (const FunctionSpec& function : function_catalogue()) {
    names.insert(function.name);
    domains.insert(function.domain);
    const auto schema = nlohmann::json::parse(function_schema(function));
    EXPECT_EQ(schema["parameters"]["required"].size(), function.parameters.size());
    EXPECT_EQ(schema["parameters"]["properties"].size(), function.parameters.size());
    for (const FunctionParameter& parameter : function.parameters) {
      EXPECT_NE(function.request.find(fmt::format("{{{}}}", parameter.name)), std::string_view::npos)
          << function.name << " never says its " << parameter.name;
    }
  }
  EXPECT_GE(names.size(), 40u);
  EXPECT_EQ(names.size(), function_catalogue().size());
  EXPECT_GE(domains.size(), 8u);
}

TEST(FunctionRequest, NamesEveryArgumentWordForWord) {
  Draw draw(5, "test");
  for (int round = 0; round < 10; ++round) {
    for (const FunctionSpec& function : function_catalogue()) {
      const FunctionRequest request = draw_request(function, draw);
      EXPECT_EQ(request.text.find('{'), std::string::npos) << request.text;
      const auto call = nlohmann::json::parse(request.call);
      EXPECT_EQ(call["name"], function.name);
      ASSERT_EQ(call["arguments"].size(), function.parameters.size());
      for (const FunctionParameter& parameter : function.parameters) {
        const auto& value = call["arguments"].at(std::string(parameter.name));
        EXPECT_EQ(value.is_number_integer(), parameter.type == "integer");
        const std::string word = value.is_string() ? value.get<std::string>() : value.dump();
        EXPECT_NE(request.text.find(word), std::string::npos) << request.text << " lacks " << word;
      }
    }
  }
}

// The tools of a prompt, from the lines that are JSON objects.
std::set<std::string> listed_tools(const Sample& sample) {
  std::set<std::string> names;
  std::istringstream lines(prompt_text(sample));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("{\"name\"") && line.find("\"parameters\"") != std::string::npos) {
      names.insert(nlohmann::json::parse(line)["name"]);
    }
  }
  return names;
}

std::vector<nlohmann::json> wanted_calls(const Sample& sample) {
  const auto reference = nlohmann::json::parse(sample.references.at(0));
  if (reference.is_array()) return reference.get<std::vector<nlohmann::json>>();
  return {reference};
}

TEST(FunctionCalling, TheRightToolIsAmongTheListedOnesAndTheCallIsNotInTheContext) {
  for (const char* parameters : {"{}", R"({"style": "chat"})", R"({"tools": 48, "examples": 4})",
                                 R"({"variant": "parallel"})", R"({"variant": "parallel_multiple", "calls": 3})"}) {
    for (const Sample& sample : all_samples("function_calling", parameters)) {
      const auto tools = listed_tools(sample);
      for (const auto& call : wanted_calls(sample)) EXPECT_TRUE(tools.contains(call["name"])) << parameters;
      EXPECT_EQ(question_text(sample).find("\"arguments\""), std::string::npos);
      EXPECT_FALSE(question_text(sample).empty());
    }
  }
}

TEST(FunctionCalling, VariantsAskForOneCallSeveralOfOneToolOrOfDifferentTools) {
  for (const Sample& sample : all_samples("function_calling")) EXPECT_EQ(wanted_calls(sample).size(), 1u);
  for (const Sample& sample : all_samples("function_calling", R"({"variant": "parallel", "calls": 3})")) {
    const auto calls = wanted_calls(sample);
    ASSERT_EQ(calls.size(), 3u);
    EXPECT_EQ(calls[0]["name"], calls[2]["name"]);
  }
  for (const Sample& sample : all_samples("function_calling", R"({"variant": "parallel_multiple", "calls": 3})")) {
    std::set<std::string> names;
    for (const auto& call : wanted_calls(sample)) names.insert(call["name"]);
    EXPECT_EQ(names.size(), 3u);
  }
}

TEST(FunctionCalling, WithoutTheTargetInExamplesOnlyTheSchemaKnowsIt) {
  for (const Sample& sample : all_samples("function_calling", R"({"target_in_examples": false})")) {
    const std::string name = wanted_calls(sample)[0]["name"];
    EXPECT_EQ(count_of(prompt_text(sample), fmt::format(R"({{"name": "{}", "arguments")", name)), 0u);
  }
}

TEST(FunctionCalling, GrowsToTheWantedContextAndKeepsTheRequest) {
  const WordTokens tokens;
  const auto plain = all_samples("function_calling", R"({"samples": 4})");
  for (const int64_t wanted : {2000, 6000, 12000}) {
    const auto longer = all_samples(
        "function_calling", fmt::format(R"({{"samples": 4, "context_tokens": {}}})", wanted), {.tokens = &tokens});
    for (size_t i = 0; i < plain.size(); ++i) {
      const auto length = static_cast<int64_t>(tokens.encode(prompt_text(longer[i])).size());
      EXPECT_GE(length, wanted);
      EXPECT_LT(length, wanted + 400);
      EXPECT_EQ(longer[i].references, plain[i].references);
      EXPECT_EQ(question_text(longer[i]), question_text(plain[i]));
    }
  }
  EXPECT_FALSE(error_of([] { (void)all_samples("function_calling", R"({"context_tokens": 100})"); }).empty());
}

TEST(FunctionCalling, SaysWhenThereAreFewerToolsThanCalls) {
  const std::string message = error_of([] {
    (void)make_workload("function_calling", R"({"variant": "parallel_multiple", "calls": 4, "tools": 2})", "c");
  });
  EXPECT_EQ(message, "c: 4 calls of different tools need at least as many tools, found 2");
}

}  // namespace
}  // namespace kvarena::datasets
