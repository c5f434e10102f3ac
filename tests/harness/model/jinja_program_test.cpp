// Jinja programs beside transformers' environment (tests/golden/model/jinja.py).

#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/core/error.h"
#include "harness/model/jinja/program.h"
#include "tests/harness/model/model_files.h"

namespace kvarena::jinja {
namespace {

using nlohmann::ordered_json;  // the order of keys is part of what programs write

std::vector<ordered_json> read_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<ordered_json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(ordered_json::parse(line));
  return lines;
}

Names names_of(const std::string& text) {
  Names names;
  const Value values = Value::of_json(text);
  for (const auto& [name, value] : *values.dict()) names.emplace_back(name.str(), value);
  return names;
}

/// Text that a program writes, or the message of its refusal.
struct Outcome {
  std::string text;
  std::string refusal;
};

Outcome run(const std::string& program, const Names& names) {
  try {
    return {.text = Program(program).render(names), .refusal = {}};
  } catch (const UserError& error) {
    return {.text = {}, .refusal = error.what()};
  }
}

TEST(JinjaProgram, WritesWhatTransformersWritesAndRefusesWhatItRefuses) {
  Names names;
  int written = 0, refused = 0;
  for (const ordered_json& line : read_lines(testing::golden_file("jinja.jsonl"))) {
    if (!line.contains("program")) {
      names = names_of(line["names"].dump());
      continue;
    }
    const Outcome outcome = run(line["program"], names);
    if (line.contains("error")) {
      EXPECT_NE(outcome.refusal, "") << line["program"] << " wrote " << outcome.text;
      ++refused;
    } else {
      EXPECT_EQ(outcome.text, line["text"].get<std::string>()) << line["program"] << outcome.refusal;
      ++written;
    }
  }
  EXPECT_EQ(written, 118);
  EXPECT_EQ(refused, 23);
}

/// $KVARENA_JINJA_VECTORS: what jinja.py made of a folder of published templates.
TEST(JinjaProgram, WritesWhatPublishedTemplatesWrite) {
  const char* file = std::getenv("KVARENA_JINJA_VECTORS");
  if (file == nullptr)
    GTEST_SKIP() << "KVARENA_JINJA_VECTORS is not set; tests/golden/model/jinja.py makes such a file";
  for (const ordered_json& line : read_lines(file)) {
    const bool escapes = line["program"].get<std::string>().find("safe") != std::string::npos;  // no Markup here
    if (line.contains("error") || escapes) continue;
    const Outcome outcome = run(line["program"], names_of(line["names"].dump()));
    EXPECT_EQ(outcome.text, line["text"].get<std::string>()) << line["names"] << outcome.refusal;
  }
}

void expect_refusal(const std::string& program, const std::string& words) {
  const std::string refusal = run(program, {{"x", int64_t{1}}}).refusal;
  EXPECT_NE(refusal.find(words), std::string::npos) << program.substr(0, 99) << ": " << refusal;
}

TEST(JinjaProgram, NamesTheLineOfWhatIsWrong) {
  expect_refusal("a\n{% if x %}\n\n", "line 3: found the end, expected \"{% endif %}\"");
  expect_refusal("\n\n{{ x | shout }}", "line 3: found the filter \"shout\"");
  expect_refusal("{% extends 'base' %}", "line 1: found the tag \"extends\"");
  expect_refusal("{{ 'a", "line 1: found a string that does not end");
  expect_refusal("{{ y.z }}", "line 1: found \"z\" of \"y\", which is undefined");
  expect_refusal("{{ raise_exception('no tools') }}", "found no tools");
}

TEST(JinjaProgram, RefusesWhatWouldNotEnd) {
  expect_refusal("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "macros that call one another without end");
  expect_refusal("{{ range(99999999) }}", "a range without end");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += '(';
  expect_refusal("{{ " + deep + " }}", "fewer tags and brackets");
  std::string nested;
  for (int i = 0; i < 100'000; ++i) nested += "{% if x %}";
  expect_refusal(nested, "fewer tags and brackets");
}

}  // namespace
}  // namespace kvarena::jinja
