// SWE-bench Lite, scored by the form of the answer alone: whether it is a valid git diff (VeriCache's "code
// format accuracy"). Rows of the oracle set, which is fetched, and of the BM25 sets carry their whole prompt in `text`,
// with the code; plain rows get one made of the problem statement.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/row_source.h"

namespace kvarena::datasets {
namespace {

constexpr const char* kInstruction =
    "You will be given a problem statement of the repository {}. Solve it by writing a patch: one git diff, inside "
    "<patch> and </patch>, that can be applied with git apply.\n\n<issue>\n";
constexpr const char* kEnding =
    "\n</issue>\n\nWrite the patch now. Begin with <patch> and a line `diff --git a/... b/...`.";

bool fill(const Row& row, const std::string& place, Sample& sample) {
  sample.id = string_field(row, "instance_id", place);
  const std::string repository = string_field(row, "repo", place);
  if (row.contains("text")) {
    sample.messages = {{"user", string_field(row, "text", place)}};
    const size_t ending = sample.messages[0].content.rfind("</code>");
    sample.question = {0, ending == std::string::npos ? 0 : ending};
  } else {
    std::string prompt = fmt::format(fmt::runtime(kInstruction), repository);
    prompt.append(string_field(row, "problem_statement", place));
    sample.question = {0, prompt.size()};
    sample.messages = {{"user", prompt.append(kEnding)}};
  }
  sample.references = {string_field(row, "patch", place)};
  sample.extras = Row{{"repo", repository}}.dump();
  return true;
}

class SweBenchLite final : public Workload {
 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_row_source(require_data_file(info(), settings.data_dir), fill);
  }
};

KVARENA_WORKLOAD(SweBenchLite,
                 {.name = "swe-bench-lite",
                  .family = "swe-bench-lite",
                  .title = "SWE-bench Lite: is the answer a valid git diff?",
                  .source = "https://huggingface.co/datasets/princeton-nlp/SWE-bench_Lite_oracle (parquet)",
                  .download = "python3 -c \"import datasets, os; datasets.load_dataset("
                              "'princeton-nlp/SWE-bench_Lite_oracle', split='test').to_json("
                              "os.environ['KVARENA_DATA'] + '/swe-bench-lite/test.jsonl')\"",
                  .licence = "MIT (benchmark); repositories under their own licences",
                  .metrics = {"git_diff_format", "output_f1"},
                  .folder = "swe-bench-lite",
                  .files = {"test.jsonl", "synthetic.jsonl"},
                  .samples = 300,
                  .generation = {.max_new_tokens = 2048}});

}  // namespace
}  // namespace kvarena::datasets
