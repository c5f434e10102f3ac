// LongBench-Write and LongWrite-Ruler (THUDM/LongWriter @3fcfdff4): write a text of a required length.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/records.h"
#include "datasets/row_source.h"

namespace kvarena::datasets {
namespace {

class LongBenchWrite final : public Workload {
 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_row_source(require_data_file(info(), settings.data_dir),
                           [](const Row& row, const std::string& place, Sample& sample) {
                             sample.messages = {{"user", string_field(row, "prompt", place)}};
                             nlohmann::json extras = {{"required_length", integer_field(row, "length", place)}};
                             if (row.contains("type")) extras["type"] = string_field(row, "type", place);
                             sample.extras = extras.dump();
                             return true;
                           });
  }
};

struct Set {
  const char* name;
  const char* title;
  std::vector<std::string> files;
  int64_t rows;
};

[[maybe_unused]] const bool registered = [] {
  const Set sets[] = {
      {"longbench-write", "LongBench-Write: texts of 100 to 30,000 words, en and zh", {"longbench_write.jsonl"}, 120},
      {"longbench-write-en", "LongBench-Write, the English half", {"longbench_write_en.jsonl"}, 60},
      {"longwrite-ruler",
       "LongWrite-Ruler: how long a text a model can write",
       {"longwrite_ruler.jsonl", "longwrite_ruler_a.jsonl"},
       48}};
  for (const Set& set : sets) {
    WorkloadRegistration({.name = set.name,
                          .family = "longbench-write",
                          .title = set.title,
                          .source = "https://github.com/THUDM/LongWriter (evaluation/)",
                          .download = fmt::format("curl -L --create-dirs -o $KVARENA_DATA/longwriter/{0} "
                                                  "https://raw.githubusercontent.com/THUDM/LongWriter/"
                                                  "3fcfdff43deceb49f7936c6bf25ad88d61df0bfa/evaluation/{0}",
                                                  set.files[0]),
                          .licence = "Apache-2.0",
                          .metrics = {"length_score", "judged_quality"},
                          .folder = "longwriter",
                          .files = set.files,
                          .samples = set.rows,
                          .generation = {.max_new_tokens = 32768, .temperature = 0.5}},
                         [] { return std::make_unique<LongBenchWrite>(); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
