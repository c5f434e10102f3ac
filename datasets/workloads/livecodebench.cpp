// LiveCodeBench, code generation (lite): problems of programming contests since 2023, answered by a Python program that
// reads and writes, or by a method of a class. Prompts are those for chat models of prompts/code_generation.py, drawn
// as its runner does; tests go to the metric as the files have them.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/row_source.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

constexpr const char* kSystem =
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a "
    "correct Python program that matches the specification and passes all tests.";
constexpr const char* kMethod =
    "### Question:\n{}\n\n### Format: You will use the following starter code to write the solution to the problem and "
    "enclose your code within delimiters.\n```python\n{}\n```\n\n### Answer: (use the provided format with "
    "backticks)\n\n";
constexpr const char* kProgram =
    "### Question:\n{}\n\n### Format: Read the inputs from stdin solve the problem and write the answer to stdout (do "
    "not directly test on the sample inputs). Enclose your code within delimiters as follows. Ensure that when the "
    "python program runs, it reads the inputs, runs the algorithm and writes output to STDOUT.\n```python\n# YOUR CODE "
    "HERE\n```\n\n### Answer: (use the provided format with backticks)\n\n";

/// One of the files, whose problems are later than those of the one before.
struct Version {
  const char* name;
  const char* file;
  int64_t problems;
};

constexpr Version kVersions[] = {{"v1", "test.jsonl", 400},  {"v2", "test2.jsonl", 111}, {"v3", "test3.jsonl", 101},
                                 {"v4", "test4.jsonl", 101}, {"v5", "test5.jsonl", 167}, {"v6", "test6.jsonl", 175}};

std::string download(const char* file) {
  return fmt::format(
      "curl -L --create-dirs -o $KVARENA_DATA/livecodebench/{0} "
      "https://huggingface.co/datasets/livecodebench/code_generation_lite/resolve/main/{0}",
      file);
}

bool fill(const Row& row, const std::string& place, Sample& sample) {
  using nlohmann::json;
  sample.id = string_field(row, "question_id", place);
  const std::string content = string_field(row, "question_content", place);
  const std::string starter = string_field(row, "starter_code", place);
  sample.messages = {
      {"system", kSystem},
      {"user", starter.empty() ? fmt::format(kProgram, content) : fmt::format(kMethod, content, starter)}};
  const json metadata = json::parse(string_field(row, "metadata", place), nullptr, /*allow_exceptions=*/false);
  if (!metadata.is_object())
    fail({.place = place, .found = "\"metadata\" of another form", .expected = "a JSON object"});
  sample.extras =
      json{{"tests", {string_field(row, "public_test_cases", place), string_field(row, "private_test_cases", place)}},
           {"function", metadata.value("func_name", json())},
           {"difficulty", string_field(row, "difficulty", place)}}
          .dump();
  return true;
}

class LiveCodeBench final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("version", version_)
        .one_of({"v1", "v2", "v3", "v4", "v5", "v6"})
        .doc("the file of problems: v1 of May 2023 to February 2024 (test.jsonl), v6 of January to April 2025");
  }

 protected:
  void describe(WorkloadInfo& info) const override {
    const auto* const version = std::ranges::find(kVersions, version_, &Version::name);
    info.files = {version->file};
    info.samples = version->problems;
    info.download = download(version->file);
  }

  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_row_source(require_data_file(info(), settings.data_dir), fill);
  }

 private:
  std::string version_ = kVersions[5].name;
};

KVARENA_WORKLOAD(
    LiveCodeBench,
    {.name = "livecodebench",
     .family = "livecodebench",
     .title = "LiveCodeBench: programs for contests' problems, run beside their tests where that is allowed",
     .source = "https://huggingface.co/datasets/livecodebench/code_generation_lite",
     .download = download(kVersions[5].file),
     .licence = "CC, version not stated",
     .metrics = {"livecodebench"},
     .folder = "livecodebench",
     .files = {kVersions[5].file},
     .samples = kVersions[5].problems,
     .generation = {.max_new_tokens = 2000, .temperature = 0.2, .top_p = 0.95}});

}  // namespace
}  // namespace kvarena::datasets
