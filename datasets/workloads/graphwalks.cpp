// GraphWalks (openai/graphwalks): a long list of edges, and the nodes that one operation on it gives.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/row_source.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

constexpr std::string_view kQuestion = "Operation:";  // its last place in a prompt; examples have it before

class GraphWalks final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("problem", problem_)
        .one_of({"all", "bfs", "parents"})
        .doc("nodes at a depth behind a node, nodes with an edge to a node, or both kinds of rows");
    p("most_chars", most_chars_).min(0).doc("rows with longer prompts are left out; 0: none is");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_row_source(
        require_data_file(info(), settings.data_dir),
        [problem = problem_, most = most_chars_](const Row& row, const std::string& place, Sample& sample) {
          if (problem != "all" && problem != string_field(row, "problem_type", place)) return false;
          if (most > 0 && integer_field(row, "prompt_chars", place) > most) return false;
          fill(row, place, sample);
          return true;
        });
  }

 private:
  static void fill(const Row& row, const std::string& place, Sample& sample) {
    std::string prompt = string_field(row, "prompt", place);
    const size_t question = prompt.rfind(kQuestion);
    if (question == std::string::npos) {
      fail({.place = fmt::format("{}: prompt", place),
            .found = "no operation",
            .expected = fmt::format("\"{}\" behind the edges", kQuestion)});
    }
    sample.question = {0, question};
    sample.messages = {{"user", std::move(prompt)}};
    sample.references = {nlohmann::json(strings_field(row, "answer_nodes", place)).dump()};
    sample.extras = nlohmann::json{{"problem_type", string_field(row, "problem_type", place)}}.dump();
  }

  std::string problem_ = "all";
  int64_t most_chars_ = 0;
};

struct Set {
  const char* name;
  const char* title;
  const char* file;
  int64_t rows;
};

[[maybe_unused]] const bool registered = [] {
  const Set sets[] = {
      {"graphwalks/128k", "GraphWalks: parents and breadth-first searches in lists of edges, to 128k tokens",
       "graphwalks_128k_and_shorter", 750},
      {"graphwalks/1m", "GraphWalks, lists of 256k to 1M tokens", "graphwalks_256k_to_1mil", 400}};
  for (const Set& set : sets) {
    WorkloadRegistration(
        {.name = set.name,
         .family = "graphwalks",
         .title = set.title,
         .source = fmt::format("https://huggingface.co/datasets/openai/graphwalks ({}.parquet)", set.file),
         .download = fmt::format("python3 -c \"import datasets, os; datasets.load_dataset('openai/graphwalks', "
                                 "data_files='{0}.parquet', split='train').to_json("
                                 "os.environ['KVARENA_DATA'] + '/graphwalks/{0}.jsonl')\"",
                                 set.file),
         .licence = "MIT",
         .metrics = {"node_set_f1"},
         .folder = "graphwalks",
         .files = {fmt::format("{}.jsonl", set.file)},
         .samples = set.rows,
         .generation = {.max_new_tokens = 16384}},
        [] { return std::make_unique<GraphWalks>(); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
