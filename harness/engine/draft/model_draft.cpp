#include "harness/engine/draft/model_draft.h"

#include <fmt/format.h>

#include "harness/core/error.h"

namespace kvarena {

ModelDraft::ModelDraft(const Transformer& target, std::shared_ptr<SharedModel> drafter, const Prefill& prompt,
                       DraftSampler sampler)
    : shared_(std::move(drafter)),
      model_(&shared_->transformer),
      sampler_(sampler),
      cache_(model_->make_cache()),
      vocab_(static_cast<size_t>(std::min(target.config().vocab_size, model_->config().vocab_size))) {
  // Rows that pad a vocabulary to a round number differ between models of one family; more is another vocabulary.
  constexpr int64_t most_padding = 1024;
  if (std::abs(target.config().vocab_size - model_->config().vocab_size) > most_padding) {
    fail({.place = "draft_model",
          .found = fmt::format("a vocabulary of {}", model_->config().vocab_size),
          .expected = fmt::format("the target's, {}", target.config().vocab_size),
          .action = "draft with a model of the same family, or where the target's tokenizer is known"});
  }
  const std::lock_guard turn(shared_->turn);
  constexpr size_t chunk = 512;
  const std::span<const int32_t> tokens = prompt.tokens;
  for (size_t done = 0; done < tokens.size(); done += chunk) {
    (void)feed(tokens.subspan(done, std::min(chunk, tokens.size() - done)));
  }
}

std::span<const float> ModelDraft::feed(std::span<const int32_t> tokens) {
  const SequencePass pass{.tokens = tokens, .cache = &cache_, .hooks = nullptr, .logits = LogitsRows::last};
  return model_->forward({&pass, 1}).first(vocab_);
}

void ModelDraft::begin(const DraftRound& round) {
  const std::lock_guard turn(shared_->turn);
  drafts_.clear();
  cache_.hold_states();
  const int64_t room = model_->config().max_position - static_cast<int64_t>(round.history.size());
  const int64_t limit = std::min(round.limit, room);
  // Tokens that the last round accepted without feeding them come first: one, or two after a full acceptance.
  std::span<const int32_t> tokens = round.history.subspan(static_cast<size_t>(cache_.length));
  while (static_cast<int64_t>(drafts_.size()) < limit) {
    const std::span<const float> logits = feed(tokens);
    drafts_.push_back(sampler_.draw(logits, cache_.length));
    tokens = {&drafts_.back().token, 1};
  }
}

void ModelDraft::commit(const Verified& verified) {
  cache_.truncate(std::min(cache_.length, verified.before + static_cast<int64_t>(verified.tokens.size())));
}

}  // namespace kvarena
