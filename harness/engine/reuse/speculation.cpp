#include "harness/engine/reuse/speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "harness/model/shared_model.h"
#include "harness/model/tokenizer/token_ranges.h"

namespace kvarena {
namespace {

class Norms final : public AttentionHooks {
 public:
  explicit Norms(Speculation& into) : into_(&into) {}
  [[nodiscard]] HookAccess reach() const override { return HookAccess::rows; }

  void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override {
    float* norms = &into_->norms[layer * into_->tokens + done_];
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int64_t c = 0; c < hidden_size; ++c) sum += double{rows[i * hidden_size + c]} * rows[i * hidden_size + c];
      norms[i] = static_cast<float>(std::sqrt(sum));
    }
    if (layer + 1 == into_->layers) done_ += count;
  }

 private:
  Speculation* into_;
  int64_t done_ = 0;  // tokens whose last layer was seen
};

void read_prompt(Transformer& model, std::span<const int32_t> tokens, double share, Speculation& speculation) {
  constexpr size_t at_once = 512;  // bounds activations
  const int64_t layers = model.config().layers;
  speculation.layers =
      std::clamp<int64_t>(static_cast<int64_t>(std::ceil(share * static_cast<double>(layers))), 1, layers);
  speculation.tokens = static_cast<int64_t>(tokens.size());
  speculation.norms.resize(static_cast<size_t>(speculation.layers) * tokens.size());
  Norms norms(speculation);
  KvCache cache = model.make_cache();
  cache.prompt_length = speculation.tokens;
  for (size_t done = 0; done < tokens.size(); done += at_once) {
    const SequencePass pass{.tokens = tokens.subspan(done, std::min(at_once, tokens.size() - done)),
                            .cache = &cache,
                            .hooks = &norms,
                            .logits = LogitsRows::none,
                            .exit_after = speculation.layers};
    (void)model.forward({&pass, 1});
  }
}

std::vector<TextRange> counted(size_t tokens) {
  std::vector<TextRange> ranges;
  for (int64_t i = 0; i < static_cast<int64_t>(tokens); ++i) ranges.push_back({.begin = i, .end = i + 1});
  return ranges;
}

}  // namespace

Speculation speculate(Transformer& target, std::span<const int32_t> tokens, const PromptLayout& layout,
                      const SpeculativeModel& speculative) {
  Speculation speculation;
  if (speculative.path.empty() || layout.text.empty()) {
    speculation.ranges = counted(tokens.size());
    speculation.target = speculation.ranges;
  }
  if (speculative.path.empty()) {
    read_prompt(target, tokens, speculative.layers, speculation);
    return speculation;
  }
  const std::shared_ptr<SharedModel> model = target.helper(speculative.path);
  if (layout.text.empty()) {
    if (model->transformer.config().vocab_size != target.config().vocab_size) {
      fail({.place = fmt::format("speculative model {}", speculative.path),
            .found =
                fmt::format("a vocabulary of {} for a prompt given as tokens", model->transformer.config().vocab_size),
            .expected = fmt::format("the target's, {}", target.config().vocab_size),
            .action = "give the prompt as text"});
    }
    read_prompt(model->transformer, tokens, speculative.layers, speculation);
    return speculation;
  }
  const std::vector<int32_t> own = model->tokenizer->encode(layout.text, {.add_special = false});
  if (const int64_t window = model->transformer.config().max_position; std::ssize(own) > window) {
    fail({.place = fmt::format("speculative model {}", speculative.path),
          .found = fmt::format("a prompt of {} of its tokens", own.size()),
          .expected = fmt::format("at most {}, its window", window),
          .action = "set \"max_length\" in the workload, or take a speculative model of a larger window"});
  }
  speculation.ranges = token_ranges(*model->tokenizer, own, layout.text);
  speculation.target = layout.ranges;
  read_prompt(model->transformer, own, speculative.layers, speculation);
  return speculation;
}

}  // namespace kvarena
