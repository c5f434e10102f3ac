#include "harness/engine/verify_session.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "harness/engine/compressed_cache.h"
#include "harness/method/registry.h"

namespace kvarena {
namespace {

std::unique_ptr<Method> verified_method(const Verifier& verifier) {
  const std::string spec = verifier.verified_cache();
  return spec.empty() ? nullptr : make_method(nlohmann::json::parse(spec), "verified cache");
}

}  // namespace

VerifySession::VerifySession(Transformer& model, const Prefill& prompt, const Verifier& verifier,
                             SessionOptions options)
    : model_(&model),
      verifier_(&verifier),
      history_(prompt.tokens),
      target_(verified_method(verifier)),
      model_facts_(prompt.model),
      full_(target_ ? compress_prompt(prompt, *target_, activity) : prompt.cache.clone()),
      meter_(options.meter),
      emitter_(std::move(options), static_cast<int64_t>(prompt.tokens.size())),
      sampler_(verifier.draft_sampling(), emitter_.sampling()) {
  const auto start = std::chrono::steady_clock::now();
  source_ =
      make_draft_source(model, prompt, verifier, sampler_, {.full = &full_, .activity = &activity, .meter = meter_});
  compress_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  resident_bytes = full_.bytes() + source_->resident_bytes();
  history_.push_back(emitter_.emit(*this, prompt.logits));
  if (!finished()) begin_round();
}

void VerifySession::begin_round() {
  // A round emits at most drafted + 1 tokens and feeds as many.
  const int64_t room = std::min(emitter_.remaining(*this), model_->config().max_position - full_.length) - 1;
  const int64_t most =
      std::min(verifier_->draft_length(), verifier_->draft_room(full_.layers.front().tail().entries(0)));
  source_->begin({.history = history_, .limit = std::clamp<int64_t>(most, 0, std::max<int64_t>(0, room))});
}

SequencePass VerifySession::next_pass() {
  if (source_->wants_pass()) return source_->next_pass();
  fed_ = {history_.back()};
  for (const Draft& draft : source_->drafts()) fed_.push_back(draft.token);
  return {.tokens = fed_, .cache = &full_, .hooks = source_->verification_hooks(), .logits = LogitsRows::all};
}

void VerifySession::consume(std::span<const float> logits) {
  if (source_->wants_pass()) {
    source_->consume(logits);
    return;
  }
  verify(logits);
  peak_bytes = full_.ledger->peak(Tier::device) + source_->peak_bytes();
  if (!finished()) begin_round();
}

void VerifySession::verify(std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(model_->config().vocab_size);
  const std::vector<Draft>& drafts = source_->drafts();
  VerifyRound round{.drafted = static_cast<int64_t>(drafts.size())};
  while (!finished()) {
    const Draft* draft = round.accepted < round.drafted ? &drafts[round.accepted] : nullptr;
    const int32_t token = emitter_.emit(*this, logits.subspan(static_cast<size_t>(round.emitted) * vocab, vocab),
                                        sampler_.rejects() ? draft : nullptr);
    history_.push_back(token);
    ++round.emitted;
    if (draft == nullptr || token != draft->token) break;
    ++round.accepted;
  }
  activity.tokens_drafted += round.drafted;
  activity.tokens_accepted += round.accepted;
  rounds.push_back(round);

  const int64_t before = full_.length - static_cast<int64_t>(fed_.size());
  full_.truncate(before + round.emitted);
  if (target_) settle();
  source_->commit(full_, before, std::span(fed_).first(static_cast<size_t>(round.emitted)));
}

/// What plain decoding does in every pass: here the round's last one is the first after which anything is due.
void VerifySession::settle() {
  const auto layers = static_cast<int64_t>(full_.layers.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    LayerContext context{.layer = layer,
                         .layers = layers,
                         .cache = full_.layers[layer],
                         .activity = activity,
                         .prompt_tokens = full_.prompt_length,
                         .model = model_facts_.get(),
                         .request = &full_};
    target_->settle(context);
  }
}

}  // namespace kvarena
