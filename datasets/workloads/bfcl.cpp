// BFCL, AST part: requests with function descriptions, answered by calls in Python form.

#include "datasets/bfcl.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/row_source.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

bool fill(const std::string& category, const BfclAnswers* answers, const Row& row, const std::string& place,
          Sample& sample) {
  sample.id = string_field(row, "id", place);
  const Row& turns = any_field(row, "question", place);
  if (!turns.is_array() || turns.empty() || !turns[0].is_array() || turns[0].empty()) {
    fail({.place = place,
          .found = "\"question\" without a turn",
          .expected = "a list of turns, each a list of messages"});
  }
  const Row& given = any_field(row, "function", place);
  const Row functions = given.is_array() ? given : Row::array({given});
  Row extras = {{"category", category}, {"function", functions}};
  sample.references = {"[]"};  // irrelevance: right is not to call; relevance: any call is
  if (answers) {
    extras["ground_truth"] = bfcl_answer(*answers, sample.id, place);
    sample.references = {extras["ground_truth"].dump()};
  }
  sample.extras = extras.dump();
  sample.messages = bfcl_messages(with_bfcl_hints(functions), turns[0], place);
  sample.question = {sample.messages.size() - 1, 0};
  return true;
}

/// Whether rows of a category have accepted calls; of relevance and irrelevance it is asked alone whether there is a
/// call.
bool has_answers(std::string_view category) { return category.find("relevance") == std::string_view::npos; }

class Bfcl final : public Workload {
 public:
  explicit Bfcl(std::string category) : category_(std::move(category)) {}

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    const DataFile file = require_data_file(info(), settings.data_dir);
    std::shared_ptr<BfclAnswers> answers;
    if (has_answers(category_)) answers = std::make_shared<BfclAnswers>(read_bfcl_answers(info(), file.root));
    return make_row_source(file,
                           [answers, category = category_](const Row& row, const std::string& place, Sample& sample) {
                             return fill(category, answers.get(), row, place, sample);
                           });
  }

 private:
  std::string category_;
};

struct Category {
  const char* name;  // as the scorer names it
  const char* file;
  const char* title;
  int64_t rows;
};

[[maybe_unused]] const bool registered = [] {
  const Category categories[] = {
      {"simple", "BFCL_v4_simple_python", "one call, one function offered", 400},
      {"multiple", "BFCL_v4_multiple", "one call, several functions offered", 200},
      {"parallel", "BFCL_v4_parallel", "several calls of one function", 200},
      {"parallel_multiple", "BFCL_v4_parallel_multiple", "several calls of several functions", 200},
      {"irrelevance", "BFCL_v4_irrelevance", "no function fits", 240},
      {"live_simple", "BFCL_v4_live_simple", "a user's request, one call, one function offered", 258},
      {"live_multiple", "BFCL_v4_live_multiple", "a user's request, one call, several functions offered", 1053},
      {"live_parallel", "BFCL_v4_live_parallel", "a user's request, several calls of one function", 16},
      {"live_parallel_multiple", "BFCL_v4_live_parallel_multiple",
       "a user's request, several calls of several functions", 24},
      {"live_irrelevance", "BFCL_v4_live_irrelevance", "a user's request that no function fits", 884},
      {"live_relevance", "BFCL_v4_live_relevance", "a user's request that some function fits", 16}};
  for (const Category& category : categories) {
    const std::string file = category.file;
    std::vector<std::string> fetched = {file + ".json"};
    if (has_answers(category.name)) fetched.push_back("possible_answer/" + file + ".json");
    WorkloadRegistration({.name = fmt::format("bfcl/{}", category.name),
                          .family = "bfcl",
                          .title = fmt::format("BFCL {}: {}", category.name, category.title),
                          .source = kBfclSource,
                          .download = bfcl_download(fetched),
                          .licence = "Apache-2.0",
                          .metrics = {"bfcl_ast"},
                          .folder = "bfcl",
                          .files = {file + ".json", file + ".jsonl"},
                          .samples = category.rows,
                          .generation = {.max_new_tokens = 512}},
                         [name = std::string(category.name)] { return std::make_unique<Bfcl>(name); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
