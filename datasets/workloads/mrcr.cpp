// MRCR (openai/mrcr): a long conversation in which the same thing was asked for several times, and one of the answers
// to give again.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/row_source.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

/// The conversation, which rows hold as the text of a list of messages.
std::vector<Message> conversation(const Row& row, const std::string& place) {
  const Row list = Row::parse(string_field(row, "prompt", place), nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) {
    fail({.place = place + ": prompt",
          .found = "another text",
          .expected = "a JSON list of messages with role and content"});
  }
  return read_messages(list, place + ": prompt");
}

class Mrcr final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("most_chars", most_chars_).min(0).doc("rows with longer prompts are left out; 0: none is");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_row_source(require_data_file(info(), settings.data_dir),
                           [most = most_chars_](const Row& row, const std::string& place, Sample& sample) {
                             if (most > 0 && integer_field(row, "n_chars", place) > most) return false;
                             fill(row, place, sample);
                             return true;
                           });
  }

 private:
  static void fill(const Row& row, const std::string& place, Sample& sample) {
    sample.messages = conversation(row, place);
    sample.question = {sample.messages.size() - 1, 0};
    sample.references = {string_field(row, "answer", place)};
    sample.extras = nlohmann::json{{"prefix", string_field(row, "random_string_to_prepend", place)},
                                   {"needles", integer_field(row, "n_needles", place)}}
                        .dump();
  }

  int64_t most_chars_ = 0;
};

[[maybe_unused]] const bool registered = [] {
  for (const int needles : {2, 4, 8}) {
    WorkloadRegistration(
        {.name = fmt::format("mrcr/{}needle", needles),
         .family = "mrcr",
         .title = fmt::format("MRCR: one of {} alike requests of a long conversation answered again", needles),
         .source = fmt::format("https://huggingface.co/datasets/openai/mrcr ({}needle/*.parquet)", needles),
         .download = fmt::format("python3 -c \"import datasets, os; datasets.load_dataset('openai/mrcr', "
                                 "data_files='{0}needle/*.parquet', split='train').to_json("
                                 "os.environ['KVARENA_DATA'] + '/mrcr/{0}needle.jsonl')\"",
                                 needles),
         .licence = "MIT",
         .metrics = {"mrcr"},
         .folder = "mrcr",
         .files = {fmt::format("{}needle.jsonl", needles)},
         .samples = 800,
         .generation = {.max_new_tokens = 2048}},
        [] { return std::make_unique<Mrcr>(); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
