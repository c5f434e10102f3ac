// LongGenBench (mozhu621/LongGenBench @62c0e869): one long text of many numbered entries under constraints.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/row_source.h"

namespace kvarena::datasets {
namespace {

bool fill(const Row& row, const std::string& place, Sample& sample) {
  sample.messages = {{"user", string_field(row, "prompt", place)}};
  sample.extras = Row{{"type", string_field(row, "type", place)},
                      {"number", integer_field(row, "number", place)},
                      {"prefix", string_field(row, "prefix", place)},
                      {"checks_once", any_field(row, "checks_once", place)},
                      {"checks_range", any_field(row, "checks_range", place)},
                      {"checks_periodic", any_field(row, "checks_periodic", place)}}
                      .dump();
  return true;
}

class LongGenBench final : public Workload {
 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_row_source(require_data_file(info(), settings.data_dir), fill);
  }
};

[[maybe_unused]] const bool registered = [] {
  for (const bool long_texts : {false, true}) {
    const std::string name = long_texts ? "long" : "short";
    WorkloadRegistration(
        {.name = fmt::format("longgenbench/{}", name),
         .family = "longgenbench",
         .title =
             fmt::format("LongGenBench {}: up to {} numbered entries under constraints", name, long_texts ? 365 : 100),
         .source = "https://github.com/mozhu621/LongGenBench (Dataset/)",
         .download = fmt::format("curl -L --create-dirs -o $KVARENA_DATA/longgenbench/Dataset_{0}.json "
                                 "https://raw.githubusercontent.com/mozhu621/LongGenBench/"
                                 "62c0e869219c225671a0b8f50217b0cd836b882b/Dataset/Dataset_{0}.json",
                                 name),
         .licence = "CC BY-ND 4.0",
         .metrics = {"completion_rate", "constraint_accuracy"},
         .folder = "longgenbench",
         .files = {fmt::format("Dataset_{}.json", name), fmt::format("Dataset_{}.sample.json", name)},
         .samples = 400,
         .chat_template = false,
         .generation = {.max_new_tokens = long_texts ? 32000 : 16000,
                        .stop = {"*** finished"},
                        .temperature = 0.95,
                        .top_p = 0.95}},
        [] { return std::make_unique<LongGenBench>(); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
