#include "harness/engine/draft/cache_draft.h"

#include <algorithm>
#include <numeric>

#include "harness/cache/sliding_window.h"
#include "harness/core/error.h"
#include "harness/engine/session/acted_layers.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/packing.h"
#include "harness/engine/session/selection_meter.h"

namespace kvarena {

CacheDraft::CacheDraft(Transformer& model, const Prefill& prompt, const CompressedCopy& copy, DraftSampler sampler,
                       const DraftContext& session)
    : method_(copy.compressor),
      sampler_(sampler),
      activity_(session.activity),
      prompt_tokens_(static_cast<int64_t>(prompt.tokens.size())),
      model_facts_(prompt.model),
      cache_(state_after_prompt(model, prompt, *method_, *activity_).cache),
      online_(method_->reach() != HookAccess::nothing),
      recorded_(cache_.ledger, model.config().hidden_size),
      // The meter measures passes of one token.
      meter_(copy.auxiliary ? nullptr : session.meter),
      aux_method_(copy.auxiliary),
      inner_hooks_(*this) {
  tell_results(*method_, cache_, session.results);
  cache_.own_tails();  // drafts grow it from the first pass on
  const auto hooks_for = [&](Activity& activity) {
    return MethodHooks(*method_, activity, prompt_tokens_, model_facts_.get());
  };
  hooks_ = hooks_for(*activity_);
  replay_hooks_ = hooks_for(again_);
  watched_ = meter_ != nullptr ? &meter_->watch(*hooks_) : &*hooks_;
  if (online_) {
    recorded_.forward_to(watched_);
    watched_ = &recorded_;
  }
  inner_hooks_.forward_to(watched_);
  if (aux_method_) aux_ = make_draft_source(model, prompt, *aux_method_->verifier(), sampler, session);
}

CacheDraft::CacheDraft(KvCache cache, const DraftSampler& sampler)
    : sampler_(sampler), cache_(std::move(cache)), recorded_(cache_.ledger, 0), inner_hooks_(*this) {}

void CacheDraft::begin(const DraftRound& round) {
  drafts_.clear();
  limit_ = round.limit;
  passes_ = 0;
  most_passes_ = round.passes;
  if (online_ || aux_ != nullptr) cache_.hold_states();
  history_.assign(round.history.begin(), round.history.end());
  if (wants_pass()) prepare();
}

void CacheDraft::prepare() {
  const auto unseen = std::span(history_).subspan(static_cast<size_t>(cache_.length));
  int64_t count = online_ ? 1 : std::min<int64_t>(std::ssize(unseen), kPrefillChunk);  // as plain decoding feeds them
  if (aux_ != nullptr && unseen.size() > 1) count = std::min<int64_t>(count, std::ssize(unseen) - 1);
  drafts_next_ = count == std::ssize(unseen);
  fed_.assign(unseen.begin(), unseen.begin() + count);
  if (!drafts_next_) return;
  if (online_ && !before_) before_.emplace(cache_);
  if (aux_ != nullptr) begin_inner();
}

void CacheDraft::begin_inner() {
  const int64_t room = limit_ - std::ssize(drafts_) - 1;
  const int64_t limit = std::min(aux_method_->verifier()->draft_length(), room);
  // Trees would have to be verified on compressed caches: chains alone.
  aux_->begin({.history = history_, .limit = std::max<int64_t>(0, limit), .room = 0});
  for (const Draft& draft : aux_->drafts()) fed_.push_back(draft.token);
}

SequencePass CacheDraft::next_pass() {
  if (!drafts_next_) {
    return {.tokens = fed_, .cache = &cache_, .hooks = hooks_ ? &*hooks_ : nullptr, .logits = LogitsRows::none};
  }
  if (aux_ != nullptr) return {.tokens = fed_, .cache = &cache_, .hooks = &inner_hooks_, .logits = LogitsRows::all};
  return {.tokens = fed_, .cache = &cache_, .hooks = watched_, .logits = LogitsRows::last};
}

void CacheDraft::consume(std::span<const float> logits) {
  if (drafts_next_) {
    ++passes_;
    aux_ != nullptr ? consume_inner(logits) : draw(logits, cache_.length);
  }
  if (wants_pass()) prepare();
}

void CacheDraft::draw(std::span<const float> logits, int64_t position) {
  drafts_.push_back(sampler_.draw(logits, position));
  history_.push_back(drafts_.back().token);
}

void CacheDraft::consume_inner(std::span<const float> logits) {
  const size_t vocab = logits.size() / fed_.size();
  const int64_t before = cache_.length - std::ssize(fed_);
  size_t kept = 0;  // rows that stay
  while (kept < fed_.size()) {
    draw(logits.subspan(kept * vocab, vocab), before + static_cast<int64_t>(kept) + 1);
    ++kept;
    if (kept == fed_.size() || fed_[kept] != drafts_.back().token) break;
  }
  keep_inner(static_cast<int64_t>(kept));
  std::vector<int32_t> rows(kept);
  std::iota(rows.begin(), rows.end(), 0);
  aux_->commit({.full = cache_, .before = before, .tokens = std::span(fed_).first(kept), .rows = rows});
}

void CacheDraft::keep_inner(int64_t kept) {
  drop_newest(std::ssize(fed_) - kept);
  cache_.follow_length();
  if (!online_) return;
  recorded_.cut_newest(kept);
  const ActedLayers acted(*method_, cache_);
  for (LayerContext& own : acted.contexts(cache_, prompt_tokens_, model_facts_.get(), *activity_)) {
    const RecordedPasses::Newest seen = recorded_.newest(own.layer, kept);
    method_->observe(own, seen.queries, seen.lse);
    method_->after_append(own);
  }
}

void CacheDraft::drop_newest(int64_t tokens) {
  for (LayerCache& layer : cache_.layers) {
    if (tokens > 0) kvarena::drop_newest(layer, tokens);
  }
  cache_.length -= tokens;
}

void CacheDraft::commit(const Verified& verified) {
  const int64_t accepted = verified.before + std::ssize(verified.tokens);
  if (takes_verified()) {
    drop_newest(cache_.length - verified.before);
    append(verified);
  } else if (cache_.length > accepted) {
    online_ ? replay(accepted) : drop_newest(cache_.length - accepted);
  }
  before_.reset();
  recorded_.clear();
  release_unseen(cache_);
  if (meter_ != nullptr) meter_->follow(verified.full, verified.before, std::ssize(verified.tokens));
  if (aux_ != nullptr) aux_->commit(verified);
}

void CacheDraft::append(const Verified& verified) {
  const auto count = std::ssize(verified.tokens);
  for (size_t layer = 0; layer < cache_.layers.size(); ++layer) {
    const EntrySegment& full = verified.full.layers[layer].tail();
    cache_.layers[layer].tail().append_entries(full, full.entries(0) - count, count);
  }
  cache_.length += count;
  cache_.take_states(verified.full);
}

void CacheDraft::replay(int64_t length) {
  before_->rewind();
  recorded_.replay(cache_, length - cache_.length, *replay_hooks_);
  cache_.follow_length();
}

bool CacheDraft::simulated_bytes() const { return packed_size(cache_).simulated; }

int64_t CacheDraft::sliding_bytes() const {
  return kvarena::sliding_bytes(cache_) + (aux_ != nullptr ? aux_->sliding_bytes() : 0);
}

int64_t CacheDraft::held_bytes() const {
  return resident_bytes() + (before_ ? before_->bytes() : 0) + recorded_.bytes() +
         (aux_ != nullptr ? aux_->held_bytes() - aux_->resident_bytes() : 0);
}

int64_t CacheDraft::peak_bytes() const {
  return cache_.ledger->peak(Tier::device) + (aux_ != nullptr ? aux_->peak_bytes() : 0);
}

int64_t CacheDraft::round_bytes(int64_t tokens) const {
  const int64_t own = online_ ? cache_.bytes() + recorded_.bytes_of(cache_, tokens) : 0;
  return own + (aux_ != nullptr ? aux_->round_bytes(tokens) : 0);
}

HookAccess CacheDraft::InnerHooks::reach() const {
  const AttentionHooks* const aux = owner_->aux_->verification_hooks();
  return std::max(ForwardingHooks::reach(), aux != nullptr ? aux->reach() : HookAccess::nothing);
}

void CacheDraft::InnerHooks::before_pass(KvCache& cache, std::span<const int32_t> tokens) {
  ForwardingHooks::before_pass(cache, tokens);
  if (AttentionHooks* const aux = owner_->aux_->verification_hooks()) aux->before_pass(cache, tokens);
}

void CacheDraft::InnerHooks::after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries,
                                             const float* lse) {
  cache.view.reset();
  if (owner_->online_) owner_->recorded_.note(layer, cache, queries, lse);
}

void CacheDraft::InnerHooks::after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) {
  ForwardingHooks::after_layer(layer, rows, count, hidden_size);
  if (AttentionHooks* const aux = owner_->aux_->verification_hooks()) aux->after_layer(layer, rows, count, hidden_size);
}

}  // namespace kvarena
