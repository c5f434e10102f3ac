#include "harness/engine/session/plain_session.h"

#include <algorithm>
#include <utility>

#include "harness/cache/sliding_window.h"
#include "harness/engine/reuse/deviation.h"
#include "harness/engine/session/packing.h"
#include "harness/engine/session/request_meter.h"
#include "harness/engine/session/selection_meter.h"
#include "harness/method/yielding_index.h"

namespace kvarena {

PlainSession::PlainSession(Transformer& model, const Prefill& prompt, const Method& method, SessionOptions options)
    : state_(state_after_prompt(model, prompt, method, activity)),
      model_facts_(prompt.model),
      // Passes of one token, unless no part of the session can tell.
      piece_(method.reach() == HookAccess::nothing && options.meter == nullptr ? kPrefillChunk : 1),
      hooks_(method, activity, static_cast<int64_t>(prompt.tokens.size()), model_facts_.get()),
      watched_(options.meter != nullptr ? &options.meter->watch(hooks_) : &hooks_),
      departs_from_(method.cannot_draft().empty() ? options.departs_from : nullptr),
      emitter_(std::move(options), static_cast<int64_t>(prompt.tokens.size())) {
  tell_results(method, state_.cache, emitter_.options().results);
  compress_seconds = state_.seconds;
  reuse = state_.reuse;
  if (reuse && prompt.cache.length == state_.cache.length) {
    deviation = layer_deviations(prompt.cache, state_.cache, state_.cache.length);
  }
  resident_bytes = state_.cache.bytes();
  sliding_bytes = kvarena::sliding_bytes(state_.cache);
  note_bytes(*this, state_.cache);
  const PackedSize packed = packed_size(state_.cache);
  bits_per_number = packed.bits_per_number();
  simulated_bytes = packed.simulated;
  traffic_so_far_ = activity.traffic;
  const std::vector<float> first = std::exchange(state_.logits, {});
  if (!emitter_.unasked().empty()) return;
  emitter_.emit(*this, first);
  note_departure(first);
}

PlainSession::Departure::Departure(KvCache& cache, size_t before, std::span<const float> of_token,
                                   const SelectionMeter* meter)
    : tokens(before), checkpoint(cache, ledger), logits(of_token.begin(), of_token.end()) {
  for (const RecurrentState& state : cache.states) states.push_back(state.clone(ledger));
  if (meter != nullptr) measured = meter->measured();
}

/// Copies of large indexes, and of entries on other tiers, take more memory than answering from the start again.
void PlainSession::note_departure(std::span<const float> logits) {
  constexpr int64_t kParts = 64;
  if (departs_from_ == nullptr) return;
  const size_t last = tokens.size() - 1;
  if (last < departs_from_->size() && tokens[last] == (*departs_from_)[last]) return;
  departs_from_ = nullptr;
  if (activity.traffic.offloaded_bytes > 0) return;
  const KvCache& cache = state_.cache;
  int64_t copied = cache.index ? cache.index->bytes() : 0;
  for (const LayerCache& layer : cache.layers) copied += layer.index ? layer.index->bytes() : 0;
  if (copied * kParts <= cache.bytes()) departure_.emplace(state_.cache, last, logits, emitter_.options().meter);
}

bool PlainSession::answer_again(SessionOptions options) {
  if (!departure_) return false;
  KvCache& cache = state_.cache;
  departure_->checkpoint.rewind();
  cache.states.clear();
  for (const RecurrentState& state : departure_->states) cache.states.push_back(state.clone(cache.ledger));
  if (departure_->measured) emitter_.options().meter->go_back(std::move(*departure_->measured));
  const std::vector<float> logits = std::move(departure_->logits);
  tokens.resize(departure_->tokens);
  departure_.reset();
  finish = FinishReason::running;
  emitter_ = emitter_.answering_again(std::move(options));
  emitter_.emit(*this, logits);
  return true;
}

SequencePass PlainSession::next_pass() {
  release_unseen(state_.cache);
  const std::span<const int32_t> question = emitter_.unasked();
  if (question.empty()) {
    std::span<const int32_t> fed = emitter_.given(*this);
    fed = fed.empty() ? std::span<const int32_t>(tokens).last(1) : fed.first(std::min(piece_, fed.size()));
    rows_ = fed.size();
    return {.tokens = fed,
            .cache = &state_.cache,
            .hooks = watched_,
            .logits = rows_ == 1 ? LogitsRows::last : LogitsRows::all};
  }
  const auto piece = question.first(std::min(piece_, question.size()));
  emitter_.ask(piece.size());
  return {.tokens = piece,
          .cache = &state_.cache,
          .hooks = watched_,
          .logits = emitter_.unasked().empty() ? LogitsRows::last : LogitsRows::none};
}

std::optional<int64_t> PlainSession::least_bytes(int64_t tokens) const {
  const auto* const yielding = dynamic_cast<const YieldingIndex*>(state_.cache.index.get());
  if (yielding == nullptr) return std::nullopt;
  return yielding->least_bytes(state_.cache, tokens);
}

void PlainSession::hold_at_most(int64_t bytes) {
  auto* const yielding = dynamic_cast<YieldingIndex*>(state_.cache.index.get());
  if (yielding == nullptr) return;
  yielding->yield(state_.cache, bytes, activity);
  if (tier_bytes.size() > 1) return;  // what it begins with is what it then holds
  resident_bytes = state_.cache.bytes();
  sliding_bytes = kvarena::sliding_bytes(state_.cache);
  peak_bytes = state_.cache.ledger->peak(Tier::device);
  state_.cache.ledger->restart_peaks();
  tier_bytes.clear();
  note_bytes(*this, state_.cache);
}

void PlainSession::consume(std::span<const float> logits) {
  const bool decodes = emitter_.unasked().empty();
  if (decodes) {
    const size_t vocab = logits.size() / rows_;
    for (size_t row = 0; row < rows_; ++row) emitter_.emit(*this, logits.subspan(row * vocab, vocab));
  }
  note_pass(*this, state_.cache, traffic_so_far_);
  if (decodes) note_departure(logits);
}

}  // namespace kvarena
