// IFEval (Zhou et al. 2023, arXiv 2311.07911): requests with instructions whose following a program can check.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/row_source.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

bool fill(const Row& row, const std::string& place, Sample& sample) {
  const std::vector<std::string> ids = strings_field(row, "instruction_id_list", place);
  const Row& arguments = any_field(row, "kwargs", place);
  if (ids.empty() || !arguments.is_array() || arguments.size() != ids.size()) {
    fail({.place = place + ": kwargs",
          .found = arguments.is_array() ? fmt::format("{} for {} instructions", arguments.size(), ids.size())
                                        : std::string(arguments.type_name()),
          .expected = "a list with an object for each of instruction_id_list, which names at least one instruction"});
  }
  sample.id = fmt::format("{}", integer_field(row, "key", place));
  sample.messages = {{"user", string_field(row, "prompt", place)}};
  sample.extras = Row{{"instruction_id_list", ids}, {"kwargs", arguments}}.dump();
  return true;
}

class Ifeval final : public Workload {
 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_row_source(require_data_file(info(), settings.data_dir), fill);
  }
};

KVARENA_WORKLOAD(Ifeval, {.name = "ifeval",
                          .family = "ifeval",
                          .title = "IFEval: 541 requests with instructions that a program checks",
                          .source = "https://github.com/google-research/google-research (instruction_following_eval)",
                          .download = "curl -L --create-dirs -o $KVARENA_DATA/ifeval/input_data.jsonl "
                                      "https://raw.githubusercontent.com/google-research/google-research/"
                                      "19638399cc9e03623c5b9087a1d6fa8813974ce9/instruction_following_eval/data/"
                                      "input_data.jsonl",
                          .licence = "Apache-2.0",
                          .metrics = {"ifeval"},
                          .folder = "ifeval",
                          .files = {"input_data.jsonl", "ifeval_input_data.jsonl"},
                          .samples = 541,
                          .generation = {.max_new_tokens = 1280}});

}  // namespace
}  // namespace kvarena::datasets
