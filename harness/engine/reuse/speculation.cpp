#include "harness/engine/reuse/speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "harness/engine/reuse/token_run.h"
#include "harness/model/pass_checks.h"
#include "harness/model/shared_model.h"
#include "harness/model/tokenizer/token_ranges.h"

namespace kvarena {
namespace {

std::vector<TextRange> counted(int64_t tokens) {
  std::vector<TextRange> ranges;
  for (int64_t i = 0; i < tokens; ++i) ranges.push_back({.begin = i, .end = i + 1});
  return ranges;
}

/// `turn` is null where nobody else runs passes of the model.
Speculation read_prompt(Transformer& model, std::span<const int32_t> tokens, double share, std::mutex* turn,
                        const std::stop_token& stop) {
  ResidualNorms norms(model, std::ssize(tokens), share);
  TokenRun run(model, tokens, &norms, norms.layers());
  while (run.remaining() > 0 && !stop.stop_requested()) {
    const auto mine = turn == nullptr ? std::unique_lock<std::mutex>() : std::unique_lock(*turn);
    const SequencePass pass = run.next_pass();
    (void)model.forward({&pass, 1});
  }
  return norms.take();
}

}  // namespace

ResidualNorms::ResidualNorms(const Transformer& model, int64_t tokens, double share) {
  require_entries(model.config(), "speculative model", "scores by layer");
  const int64_t layers = model.config().layers;
  noted_.layers = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(share * static_cast<double>(layers))), 1, layers);
  noted_.tokens = tokens;
  noted_.norms.resize(static_cast<size_t>(noted_.layers * tokens));
  noted_.ranges = noted_.target = counted(tokens);
}

void ResidualNorms::after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) {
  float* norms = &noted_.norms[layer * noted_.tokens + done_];
  for (int64_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int64_t c = 0; c < hidden_size; ++c) sum += double{rows[i * hidden_size + c]} * rows[i * hidden_size + c];
    norms[i] = static_cast<float>(std::sqrt(sum));
  }
  if (layer + 1 == noted_.layers) done_ += count;
}

Speculation speculate(Transformer& target, std::span<const int32_t> tokens, const PromptLayout& layout,
                      const SpeculativeModel& speculative, const std::stop_token& stop) {
  if (speculative.path.empty()) return read_prompt(target, tokens, speculative.layers, nullptr, stop);
  const std::shared_ptr<SharedModel> model = target.helper(speculative.path);
  if (layout.text.empty() || model->tokenizer == nullptr) {
    if (model->transformer.config().vocab_size != target.config().vocab_size) {
      fail({.place = fmt::format("speculative model {}", speculative.path),
            .found =
                fmt::format("a vocabulary of {} for a prompt given as tokens", model->transformer.config().vocab_size),
            .expected = fmt::format("the target's, {}", target.config().vocab_size),
            .action = "give the prompt as text"});
    }
    return read_prompt(model->transformer, tokens, speculative.layers, &model->turn, stop);
  }
  const std::vector<int32_t> own = model->tokenizer->encode(layout.text, {.add_special = false});
  if (const int64_t window = model->transformer.config().max_position; std::ssize(own) > window) {
    fail({.place = fmt::format("speculative model {}", speculative.path),
          .found = fmt::format("a prompt of {} of its tokens", own.size()),
          .expected = fmt::format("at most {}, its window", window),
          .action = "set \"max_length\" in the workload, or take a speculative model of a larger window"});
  }
  Speculation speculation = read_prompt(model->transformer, own, speculative.layers, &model->turn, stop);
  speculation.ranges = token_ranges(*model->tokenizer, own, layout.text);
  speculation.target = layout.ranges;
  return speculation;
}

}  // namespace kvarena
