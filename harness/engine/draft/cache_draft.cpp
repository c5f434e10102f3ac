#include "harness/engine/draft/cache_draft.h"

#include <algorithm>

#include "harness/core/error.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/selection_meter.h"

namespace kvarena {

CacheDraft::CacheDraft(Transformer& model, const Prefill& prompt, const CompressedCopy& copy, DraftSampler sampler,
                       const DraftContext& session)
    : method_(copy.compressor),
      sampler_(sampler),
      activity_(session.activity),
      prompt_tokens_(static_cast<int64_t>(prompt.tokens.size())),
      model_facts_(prompt.model),
      committed_(state_after_prompt(model, prompt, *method_, *activity_).cache),
      hooks_(*method_, *activity_, model.config().layers, prompt_tokens_, model_facts_.get()),
      // The meter measures passes of one token.
      meter_(copy.auxiliary ? nullptr : session.meter),
      hidden_size_(model.config().hidden_size),
      aux_method_(copy.auxiliary),
      inner_hooks_(*this) {
  if (meter_ != nullptr) meter_->watch(hooks_);
  if (aux_method_) aux_ = make_draft_source(model, prompt, *aux_method_->verifier(), sampler, session);
}

LayerContext CacheDraft::context(KvCache& cache, int64_t layer) const {
  return {.layer = layer,
          .layers = static_cast<int64_t>(cache.layers.size()),
          .cache = cache.layers[layer],
          .activity = *activity_,
          .prompt_tokens = prompt_tokens_,
          .model = model_facts_.get(),
          .request = &cache};
}

void CacheDraft::begin(const DraftRound& round) {
  drafts_.clear();
  fed_ = {round.history.back()};
  limit_ = round.limit;
  passes_ = 0;
  most_passes_ = round.passes;
  scratch_ = committed_.clone();
  if (aux_ == nullptr) return;
  history_.assign(round.history.begin(), round.history.end());
  begin_inner();
}

void CacheDraft::begin_inner() {
  fed_ = {history_.back()};
  const int64_t room = limit_ - static_cast<int64_t>(drafts_.size()) - 1;
  const int64_t limit = std::min(aux_method_->verifier()->draft_length(), room);
  // Trees would have to be verified on compressed caches: chains alone.
  aux_->begin({.history = history_, .limit = std::max<int64_t>(0, limit), .room = 0});
  for (const Draft& draft : aux_->drafts()) fed_.push_back(draft.token);
}

SequencePass CacheDraft::next_pass() {
  if (aux_ != nullptr) {
    return {.tokens = fed_, .cache = &*scratch_, .hooks = &inner_hooks_, .logits = LogitsRows::all};
  }
  AttentionHooks* const hooks = meter_ != nullptr ? static_cast<AttentionHooks*>(meter_) : &hooks_;
  return {.tokens = fed_, .cache = &*scratch_, .hooks = hooks, .logits = LogitsRows::last};
}

void CacheDraft::consume(std::span<const float> logits) {
  ++passes_;
  if (aux_ != nullptr) return consume_inner(logits);
  drafts_.push_back(sampler_.draw(logits, scratch_->length));
  fed_ = {drafts_.back().token};
}

void CacheDraft::consume_inner(std::span<const float> logits) {
  const size_t vocab = logits.size() / fed_.size();
  const int64_t before = scratch_->length - static_cast<int64_t>(fed_.size());
  size_t kept = 0;  // rows that stay
  while (kept < fed_.size()) {
    const int64_t position = before + static_cast<int64_t>(kept) + 1;
    drafts_.push_back(sampler_.draw(logits.subspan(kept * vocab, vocab), position));
    history_.push_back(drafts_.back().token);
    ++kept;
    if (kept == fed_.size() || fed_[kept] != drafts_.back().token) break;
  }
  keep_inner(static_cast<int64_t>(kept));
  std::vector<int32_t> rows(kept);
  std::iota(rows.begin(), rows.end(), 0);
  aux_->commit({.full = *scratch_, .before = before, .tokens = std::span(fed_).first(kept), .rows = rows});
  if (wants_pass()) begin_inner();
}

void CacheDraft::keep_inner(int64_t kept) {
  const int64_t rejected = static_cast<int64_t>(fed_.size()) - kept;
  for (int64_t layer = 0; layer < static_cast<int64_t>(scratch_->layers.size()); ++layer) {
    if (rejected > 0) drop_newest(scratch_->layers[layer], rejected);
    LayerContext own = context(*scratch_, layer);
    const InnerHooks::Seen& seen = inner_hooks_.seen[layer];
    method_->observe(own, seen.queries(kept, fed_), seen.lse.data());
    method_->after_append(own);
  }
  scratch_->length -= rejected;
}

void CacheDraft::commit(const Verified& verified) {
  RequestContext request{
      .cache = committed_, .activity = *activity_, .prompt_tokens = prompt_tokens_, .model = model_facts_.get()};
  method_->on_tokens(request, verified.tokens);
  const auto count = static_cast<int64_t>(verified.tokens.size());
  const auto layers = static_cast<int64_t>(verified.full.layers.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    // The full cache is dense: its entry index is the position.
    committed_.layers[layer].tail().append_entries(verified.full.layers[layer].tail(), verified.before, count);
    LayerContext own = context(committed_, layer);
    method_->after_append(own);
  }
  committed_.length += count;
  if (meter_ != nullptr) meter_->follow(verified.full, verified.before, count);
  if (aux_ != nullptr) aux_->commit(verified);
}

int64_t CacheDraft::peak_bytes() const {
  return committed_.bytes() + (scratch_ ? scratch_->ledger->peak(Tier::device) : 0) +
         (aux_ != nullptr ? aux_->peak_bytes() : 0);
}

HookAccess CacheDraft::InnerHooks::reach() const {
  const AttentionHooks* const aux = owner_->aux_->verification_hooks();
  return std::max({HookAccess::rows, ForwardingHooks::reach(), aux != nullptr ? aux->reach() : HookAccess::nothing});
}

void CacheDraft::InnerHooks::before_pass(KvCache& cache, std::span<const int32_t> tokens) {
  ForwardingHooks::before_pass(cache, tokens);
  if (AttentionHooks* const aux = owner_->aux_->verification_hooks()) aux->before_pass(cache, tokens);
}

void CacheDraft::InnerHooks::after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries,
                                             const float* lse) {
  cache.view.reset();
  const LayerShape& shape = cache.shape();
  const int64_t row = shape.q_heads * shape.head_dim;
  seen.resize(std::max(seen.size(), static_cast<size_t>(layer) + 1));
  Seen& own = seen[layer];
  own = {.lse = {lse, lse + queries.q_len * shape.q_heads}, .row = row, .position = queries.position};
  for (int64_t t = 0; t < queries.q_len; ++t) {
    const float* q = queries.q + t * queries.q_stride;
    own.q.insert(own.q.end(), q, q + row);
  }
  if (queries.hidden == nullptr) return;
  own.hidden.assign(queries.hidden, queries.hidden + queries.q_len * owner_->hidden_size_);
}

void CacheDraft::InnerHooks::after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) {
  ForwardingHooks::after_layer(layer, rows, count, hidden_size);
  if (AttentionHooks* const aux = owner_->aux_->verification_hooks()) aux->after_layer(layer, rows, count, hidden_size);
}

}  // namespace kvarena
