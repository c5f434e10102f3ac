// ZeroSCROLLS (tau-nlp/zero_scrolls @c994676): ten tasks over long texts, whose rows have their whole prompts. As in
// experiments/hf/run_hf_model.py the end of the text makes way for the row's mark where a prompt is too long; answers
// have the lengths of experiments/api/api.py. Rows are those of the validation sets: the answers of the others are kept
// by the authors. Rows of one id are one sample with several references, as in submission/verify_task.py.

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "datasets/row_source.h"
#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::datasets {
namespace {

struct Task {
  const char* name;
  const char* title;
  int64_t max_new_tokens;
};

constexpr Task kTasks[] = {{"gov_report", "summaries of agencies' reports", 1024},
                           {"summ_screen_fd", "summaries of episodes", 512},
                           {"qmsum", "summaries of meetings by a query", 512},
                           {"squality", "paragraphs about stories by a question", 512},
                           {"qasper", "questions about papers", 128},
                           {"narrative_qa", "questions about books and scripts", 64},
                           {"quality", "questions about stories, with four options", 10},
                           {"musique", "questions over several paragraphs", 32},
                           {"space_digest", "the percentage of positive reviews", 36},
                           {"book_sum_sort", "the order of summaries of chapters", 256}};

/// Bytes of the first `count` code points of a text.
size_t bytes_of(std::string_view text, int64_t count, const std::string& place) {
  for (size_t at = 0; at < text.size() && count >= 0; ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    if (begins && count-- == 0) return at;
  }
  if (count != 0) fail({.place = place, .found = "an index outside the input", .expected = "one inside"});
  return text.size();
}

std::string text_before_query(const Row& row, const std::string& place) {
  const std::string input = string_field(row, "input", place);
  return input.substr(0, bytes_of(input, integer_field(row, "query_start_index", place), place));
}

/// Things that only all rows of a file together say.
struct Together {
  std::map<std::string, std::vector<std::string>> outputs;   // by id
  std::map<std::string, std::set<std::string>> asked_about;  // ids by the hash of the text
};

Together read_together(const std::filesystem::path& file) {
  Together all;
  RecordReader rows(file);
  while (const std::optional<Record> record = rows.next()) {
    const Row row = parse_object(*record);
    const std::string id = string_field(row, "id", record->place);
    all.outputs[id].push_back(string_field(row, "output", record->place));
    all.asked_about[sha256(text_before_query(row, record->place))].insert(id);
  }
  return all;
}

class ZeroScrolls final : public Workload {
 public:
  explicit ZeroScrolls(const Task& task) : task_(&task) {}

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    const DataFile file = require_data_file(info(), settings.data_dir);
    return make_row_source(file, [task = task_, all = read_together(file.path), seen = std::set<std::string>()](
                                     const Row& row, const std::string& place, Sample& sample) mutable {
      sample.id = string_field(row, "id", place);
      if (!seen.insert(sample.id).second) return false;
      const std::string before = text_before_query(row, place), name = sha256(before);
      if (all.asked_about.at(name).size() > 1) sample.context = name;
      sample.messages = {{"user", string_field(row, "input", place)}};
      sample.question = {0, before.size()};
      sample.cut_mark = string_field(row, "truncation_seperator", place);
      sample.references = all.outputs.at(sample.id);
      sample.extras = nlohmann::json{{"task", task->name}}.dump();
      return true;
    });
  }

 private:
  const Task* task_;
};

[[maybe_unused]] const bool registered = [] {
  for (const Task& task : kTasks) {
    WorkloadRegistration(
        {.name = fmt::format("zero_scrolls/{}", task.name),
         .family = "zero_scrolls",
         .title = fmt::format("ZeroSCROLLS {}: {}", task.name, task.title),
         .source = "https://huggingface.co/datasets/tau/zero_scrolls",
         .download = fmt::format("curl -L --create-dirs -o $KVARENA_DATA/zero_scrolls/{0}.zip "
                                 "https://huggingface.co/datasets/tau/zero_scrolls/resolve/main/{0}.zip && python3 -m "
                                 "zipfile -e $KVARENA_DATA/zero_scrolls/{0}.zip $KVARENA_DATA/zero_scrolls",
                                 task.name),
         .licence = "MIT (repository); texts as their sources state",
         .metrics = {"zero_scrolls"},
         .folder = fmt::format("zero_scrolls/{}", task.name),
         .files = {"validation.jsonl"},
         .samples = 20,
         .chat_template = false,
         .generation = {.max_new_tokens = task.max_new_tokens},
         .truncation = TruncationRule::context_end},
        [&task] { return std::make_unique<ZeroScrolls>(task); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
