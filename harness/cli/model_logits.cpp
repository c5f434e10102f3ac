// kvarena model logits: what the model says next, for checking the backend against others.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/model_input.h"
#include "harness/cli/npy.h"
#include "harness/cli/top_tokens.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"
#include "harness/core/page.h"
#include "harness/engine/session/prefill.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

struct Options {
  ModelOptions model;
  PromptOptions prompt;
  int64_t top = 10;
  bool all = false;
  std::optional<std::filesystem::path> output;

  void declare(OptionSet& o) {
    model.declare(o);
    prompt.declare(o);
    o.option("top", "N", top).help("so many of the likeliest tokens");
    o.flag("all", all).help("logits after every token of the prompt instead of the last");
    o.option("output", "FILE", output).help("write all logits here: .npy (float32, [rows, vocabulary]) or .json");
  }
};

/// [rows, vocab_size]: rows are the last token's or, with `all`, every token's.
std::vector<float> logits_of(Transformer& model, const std::vector<int32_t>& tokens, bool all) {
  if (!all) return prefill(model, tokens, {}).logits;
  constexpr size_t kChunk = 64;  // bounds the logits of one pass
  KvCache cache = model.make_cache();
  std::vector<float> logits;
  for (size_t begin = 0; begin < tokens.size(); begin += kChunk) {
    const std::span<const int32_t> chunk = std::span(tokens).subspan(begin, std::min(kChunk, tokens.size() - begin));
    const SequencePass pass{.tokens = chunk, .cache = &cache, .logits = LogitsRows::all};
    const std::span<const float> rows = model.forward({&pass, 1});
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  return logits;
}

void write_logits(const std::filesystem::path& path, std::span<const float> logits, int64_t columns) {
  const int64_t rows = static_cast<int64_t>(logits.size()) / columns;
  if (path.extension() == ".npy") {
    write_file(path, npy_matrix(logits, rows, columns));
    return;
  }
  json matrix = json::array();
  for (int64_t row = 0; row < rows; ++row) {
    const auto values = logits.subspan(static_cast<size_t>(row * columns), static_cast<size_t>(columns));
    matrix.push_back(std::vector<float>(values.begin(), values.end()));
  }
  write_file(path, matrix.dump() + "\n");
}

void check_output(const std::optional<std::filesystem::path>& path) {
  if (path && path->extension() != ".npy" && path->extension() != ".json") {
    fail({.place = "--output",
          .found = fmt::format("\"{}\"", path->string()),
          .expected = "a name that ends in .npy or .json"});
  }
}

int run(const Options& options) {
  check_output(options.output);
  const OpenedModel model = open_chosen(options.model);
  const std::vector<int32_t> tokens = prompt_tokens(options.prompt, model);
  Transformer transformer = load_weights(model, options.model);
  const std::vector<float> logits = logits_of(transformer, tokens, options.all);
  const auto columns = static_cast<size_t>(model.config.vocab_size);
  if (options.output) write_logits(*options.output, logits, static_cast<int64_t>(columns));
  const std::span<const float> last = std::span(logits).last(columns);
  const json result{{"model", model.config.name},
                    {"dtype", options.model.dtype},
                    {"tokens", tokens},
                    {"top", top_tokens(last, options.top, *model.tokenizer)}};
  print(json_text(result, 2) + "\n");
  return 0;
}

}  // namespace

Command model_logits_command() {
  return make_command<Options>(
      {.name = "logits",
       .summary = "the model's logits after a prompt",
       .examples = {{"kvarena model logits --prompt 'The capital of France is'", "the ten likeliest next tokens"},
                    {"kvarena model logits --ids 1,4093 --dtype f32 --all --output logits.npy",
                     "every logit, to compare"}}},
      run);
}

}  // namespace kvarena::cli
