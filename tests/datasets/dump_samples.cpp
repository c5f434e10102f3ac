// Writes the samples of a workload as JSON Lines, for looking at them and for calibrating them on a model:
//   dump_samples NAME [PARAMETERS_JSON [LIMIT]]
// Tokens are counted as words and marks; a run uses the model's own tokenizer.

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "datasets/workload.h"
#include "harness/core/error.h"
#include "tests/datasets/word_tokens.h"

using kvarena::datasets::make_workload;
using kvarena::datasets::SampleReader;
using kvarena::datasets::WordTokens;

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: dump_samples NAME [PARAMETERS_JSON [LIMIT]]\n");
    return 1;
  }
  try {
    const auto workload = make_workload(argv[1], argc > 2 ? argv[2] : "{}", "command line");
    const long limit = argc > 3 ? std::atol(argv[3]) : -1;
    const WordTokens tokens;
    SampleReader reader = workload->open({.tokens = &tokens});
    long written = 0;
    while (auto sample = written == limit ? std::nullopt : reader.next()) {
      nlohmann::json row = {{"id", sample->id},
                            {"messages", nlohmann::json::array()},
                            {"chat_template", sample->chat_template},
                            {"answer_prefix", sample->answer_prefix},
                            {"question", {{"message", sample->question.message}, {"byte", sample->question.byte}}},
                            {"references", sample->references},
                            {"extras", nlohmann::json::parse(sample->extras)},
                            {"metrics", workload->info().metrics},
                            {"max_new_tokens", sample->generation.max_new_tokens},
                            {"stop", sample->generation.stop},
                            {"prompt_sha256", sample->prompt_sha256}};
      for (const kvarena::datasets::Message& message : sample->messages) {
        row["messages"].push_back({{"role", message.role}, {"content", message.content}});
      }
      std::puts(row.dump().c_str());
      ++written;
    }
  } catch (const kvarena::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
