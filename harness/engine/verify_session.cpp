#include "harness/engine/verify_session.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "harness/engine/compressed_cache.h"
#include "harness/method/registry.h"

namespace kvarena {

VerifySession::VerifySession(Transformer& model, const Prefill& prompt, const Verifier& verifier,
                             SessionOptions options)
    : model_(&model),
      verifier_(&verifier),
      history_(prompt.tokens),
      full_(prompt.cache.clone()),
      model_facts_(prompt.model),
      emitter_(std::move(options), static_cast<int64_t>(prompt.tokens.size())) {
  const auto start = std::chrono::steady_clock::now();
  if (const std::string spec = verifier.drafter(); !spec.empty()) {
    drafter_ = make_method(nlohmann::json::parse(spec), "drafter");
    committed_ = compress_prompt(prompt, *drafter_, activity);
    hooks_.emplace(*drafter_, activity, model.config().layers, static_cast<int64_t>(prompt.tokens.size()),
                   model_facts_.get());
  }
  compress_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  resident_bytes = full_.bytes() + (committed_ ? committed_->bytes() : 0);
  history_.push_back(emitter_.emit(*this, prompt.logits));
  if (!finished()) begin_round();
}

void VerifySession::begin_round() {
  // A round emits at most drafted + 1 tokens and feeds as many.
  const int64_t room = std::min(emitter_.remaining(*this), model_->config().max_position - full_.length) - 1;
  limit_ = std::clamp<int64_t>(verifier_->draft_length(), 0, std::max<int64_t>(0, room));
  drafted_.clear();
  if (committed_) {
    scratch_ = committed_->clone();
  } else {
    drafted_ = verifier_->propose(history_, limit_);
    limit_ = static_cast<int64_t>(drafted_.size());
  }
}

SequencePass VerifySession::next_pass() {
  fed_ = {drafting() && !drafted_.empty() ? drafted_.back() : history_.back()};
  if (drafting()) return {.tokens = fed_, .cache = &*scratch_, .hooks = &*hooks_, .logits = LogitsRows::last};
  fed_.insert(fed_.end(), drafted_.begin(), drafted_.end());
  return {.tokens = fed_, .cache = &full_, .hooks = nullptr, .logits = LogitsRows::all};
}

void VerifySession::consume(std::span<const float> logits) {
  if (drafting()) {
    drafted_.push_back(verifier_->draft(logits));
    return;
  }
  verify(logits);
  peak_bytes =
      full_.ledger->peak(Tier::device) + (scratch_ ? committed_->bytes() + scratch_->ledger->peak(Tier::device) : 0);
  if (!finished()) begin_round();
}

void VerifySession::verify(std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(model_->config().vocab_size);
  VerifyRound round{.drafted = limit_};
  while (!finished()) {
    const int32_t token = emitter_.emit(*this, logits.subspan(static_cast<size_t>(round.emitted) * vocab, vocab));
    history_.push_back(token);
    ++round.emitted;
    if (round.accepted == limit_ || token != drafted_[round.accepted]) break;
    ++round.accepted;
  }
  activity.tokens_drafted += round.drafted;
  activity.tokens_accepted += round.accepted;
  rounds.push_back(round);
  commit(round.emitted);
}

void VerifySession::commit(int64_t kept) {
  const int64_t before = full_.length - static_cast<int64_t>(fed_.size());
  full_.truncate(before + kept);
  if (!committed_) return;
  const auto layers = static_cast<int64_t>(full_.layers.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    LayerCache& cache = committed_->layers[layer];
    // The full cache is dense: its entry index is the position.
    cache.tail().append_entries(full_.layers[layer].tail(), before, kept);
    LayerContext context{.layer = layer,
                         .layers = layers,
                         .cache = cache,
                         .activity = activity,
                         .prompt_tokens = static_cast<int64_t>(history_.size() - tokens.size()),
                         .model = model_facts_.get()};
    drafter_->settle(context);
  }
  committed_->length += kept;
}

}  // namespace kvarena
