#include "harness/engine/session/verify_session.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

#include "harness/cache/sliding_window.h"
#include "harness/core/error.h"
#include "harness/engine/draft/cache_draft.h"
#include "harness/engine/session/acted_layers.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/packing.h"
#include "harness/engine/session/request_meter.h"

namespace kvarena {

VerifySession::VerifySession(Transformer& model, const Prefill& prompt, const Verifier& verifier,
                             SessionOptions options)
    : model_(&model),
      verifier_(&verifier),
      history_(prompt.tokens),
      target_(verifier.verified_cache()),
      model_facts_(prompt.model),
      full_(target_ ? compress_prompt(prompt, *target_, activity) : prompt.cache.clone()),
      meter_(options.meter),
      emitter_(std::move(options), static_cast<int64_t>(prompt.tokens.size())),
      sampler_(verifier.draft_sampling(), emitter_.sampling()) {
  const std::optional<Tier> tier = emitter_.options().offload_tier;
  KVARENA_ASSERT(!tier || std::holds_alternative<CompressedCopy>(verifier.drafter()),
                 "a cache is offloaded while another one drafts");
  if (!tier) release_unseen(full_);
  const auto start = std::chrono::steady_clock::now();
  source_ = make_draft_source(model, prompt, verifier, sampler_,
                              {.full = &full_,
                               .compressed = static_cast<bool>(target_),
                               .activity = &activity,
                               .results = emitter_.options().results,
                               .meter = meter_,
                               .tokenizer = emitter_.options().tokenizer});
  compress_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  resident_bytes = (tier ? full_.state_bytes() : full_.bytes()) + source_->resident_bytes();
  sliding_bytes = (tier ? 0 : kvarena::sliding_bytes(full_)) + source_->sliding_bytes();
  simulated_bytes = packed_size(full_).simulated || source_->simulated_bytes();
  if (emitter_.unasked().empty()) offload_full();
  note_round();
  if (!emitter_.unasked().empty()) return;
  history_.push_back(emitter_.emit(*this, prompt.logits));
  if (!finished()) begin_round();
}

VerifySession::VerifySession(Transformer& model, std::vector<int32_t> prompt, const Verifier* verifier,
                             KvCache compressed, KvCache full, SessionOptions options)
    : model_(&model),
      verifier_(verifier),
      history_(std::move(prompt)),
      full_(std::move(full)),
      meter_(nullptr),
      emitter_(std::move(options), static_cast<int64_t>(history_.size())),
      sampler_(verifier == nullptr ? DraftSampling::coupled : verifier->draft_sampling(), emitter_.sampling()),
      source_(std::make_unique<CacheDraft>(std::move(compressed), sampler_)) {
  KVARENA_ASSERT(emitter_.unasked().empty(), "a question behind a prompt without its cache");
  full_.length = full_.prompt_length = static_cast<int64_t>(history_.size()) - 1;
  resident_bytes = source_->resident_bytes();
  note_round();
}

VerifySession::VerifySession(Transformer& model, std::vector<int32_t> prompt, const Verifier* verifier,
                             KvCache compressed, SessionOptions options)
    : VerifySession(model, std::move(prompt), verifier, std::move(compressed), model.make_cache(), std::move(options)) {
  absent_ = true;
  begin_round();
}

VerifySession::VerifySession(Transformer& model, std::vector<int32_t> prompt, const Verifier& verifier,
                             KvCache compressed, ParkedCache full, SessionOptions options)
    : VerifySession(model, std::move(prompt), &verifier, std::move(compressed), std::move(full.cache),
                    std::move(options)) {
  offloaded_.emplace(full_, std::move(full.stores), full.tier);
  reload_.emplace(*offloaded_);
  begin_round();
}

void VerifySession::offload_full() {
  const std::optional<Tier> tier = emitter_.options().offload_tier;
  if (!tier) return;
  start_bytes_ = held_bytes();
  offloaded_.emplace(full_, model_facts_->tiers, *tier);
  reload_.emplace(*offloaded_);
}

void VerifySession::take_full(KvCache prompt) {
  const int64_t since = full_.length - prompt.length;
  for (size_t layer = 0; layer < prompt.layers.size() && since > 0; ++layer) {
    const EntrySegment& newest = full_.layers[layer].tail();
    prompt.layers[layer].tail().append_entries(newest, newest.entries(0) - since, since);
  }
  prompt.length = full_.length;
  full_ = std::move(prompt);
  absent_ = false;
}

const KvCache& VerifySession::drafted_on() const { return dynamic_cast<const CacheDraft&>(*source_).cache(); }

void VerifySession::drop_full() {
  KvCache since = model_->make_cache();
  for (size_t layer = 0; layer < since.layers.size(); ++layer) {
    const EntrySegment& tail = full_.layers[layer].tail();
    const int64_t count = full_.length - full_.prompt_length;
    since.layers[layer].tail().append_entries(tail, tail.entries(0) - count, count);
  }
  since.length = full_.length;
  since.prompt_length = full_.prompt_length;
  full_ = std::move(since);
  absent_ = true;
}

void VerifySession::stop_drafting() {
  source_->end_drafting();
  most_drafts_ = 0;
  verifier_ = nullptr;
}

/// Tokens that a round may draft.
int64_t VerifySession::draft_limit() const {
  if (verifier_ == nullptr) return 0;
  if (offloaded_) return std::numeric_limits<int64_t>::max();
  if (absent_) return verifier_->draft_length();
  const int64_t packed = target_ ? target_->layers().of(full_).front() : 0;
  return verifier_->draft_room(full_.layers[static_cast<size_t>(packed)].tail().entries(0));
}

int64_t VerifySession::passing_bytes() const {
  if (verifier_ == nullptr) return 0;
  const int64_t remaining = emitter_.remaining(*this);  // which a schedule may let one round draft
  return source_->round_bytes(offloaded_ ? remaining : std::min(remaining, verifier_->draft_room(full_.length)));
}

void VerifySession::begin_round() {
  if (!absent_ && !offloaded_) release_unseen(full_);  // what is drafted from here on may be taken back
  if (verifier_ == nullptr) source_ = std::make_unique<DraftSource>();
  // A round emits at most drafted + 1 tokens and feeds as many.
  const int64_t room = std::max<int64_t>(0, model_->config().max_position - full_.length - 1);
  most_drafts_ = std::max<int64_t>(0, std::min({draft_limit(), room, emitter_.remaining(*this) - 1}));
  most_drafts_ > 0 ? full_.hold_states() : full_.release_states();
  const int64_t length = verifier_ == nullptr ? 0 : verifier_->draft_length();
  source_->begin({.history = history_,
                  .limit = most_drafts_,
                  .room = room,
                  .passes = offloaded_ ? std::numeric_limits<int64_t>::max() : length});
}

SequencePass VerifySession::next_pass() {
  if (const std::span<const int32_t> question = emitter_.unasked(); !question.empty()) {
    // Where a method packs what is verified on, a pass ends before or where anything is due, as rounds do.
    const int64_t most = target_ ? std::min(draft_limit() + 1, kPrefillChunk) : kPrefillChunk;
    const auto piece = question.first(std::min(static_cast<size_t>(most), question.size()));
    fed_.assign(piece.begin(), piece.end());
    return {.tokens = fed_,
            .cache = &full_,
            .hooks = source_->verification_hooks(),
            .logits = piece.size() == question.size() ? LogitsRows::last : LogitsRows::none};
  }
  if (source_->wants_pass()) return source_->next_pass();
  KVARENA_ASSERT(!absent_ && (!offloaded_ || offloaded_->is_coming()), "a verification before its cache");
  fed_ = {history_.back()};
  for (const Draft& draft : source_->drafts()) fed_.push_back(draft.token);
  tree_.clear();
  if (!source_->parents().empty()) {
    tree_.push_back(-1);  // the newest token, before all drafts
    for (const int32_t parent : source_->parents()) tree_.push_back(parent + 1);
  }
  AttentionHooks* hooks = source_->verification_hooks();
  if (reload_) {
    reload_->forward_to(hooks);
    hooks = &*reload_;
  }
  return {.tokens = fed_, .cache = &full_, .hooks = hooks, .logits = LogitsRows::all, .parents = tree_};
}

void VerifySession::consume(std::span<const float> logits) {
  const bool asking = !emitter_.unasked().empty();
  if (!asking && source_->wants_pass()) {
    source_->consume(logits);
    return;
  }
  asking ? take_question(logits) : verify(logits);
  note_round();
  peak_bytes = std::max(peak_bytes, full_.ledger->peak(Tier::device) + source_->peak_bytes());
  if (emitter_.unasked().empty() && !finished()) begin_round();
}

/// The tokens that were fed join the request as if they had been drafted and accepted.
void VerifySession::take_question(std::span<const float> logits) {
  const int64_t before = full_.length - static_cast<int64_t>(fed_.size());
  history_.insert(history_.end(), fed_.begin(), fed_.end());
  emitter_.ask(fed_.size());
  if (target_) after_append();
  std::vector<int32_t> rows(fed_.size());
  std::iota(rows.begin(), rows.end(), 0);
  source_->commit({.full = full_, .before = before, .tokens = fed_, .rows = rows});
  if (!emitter_.unasked().empty()) return;
  offload_full();
  history_.push_back(emitter_.emit(*this, logits));
}

/// The draft that continues `row` with `token`, as a row of the pass; 0 when there is none.
int32_t VerifySession::accepted_row(int32_t row, int32_t token) const {
  if (tree_.empty()) {
    const auto next = static_cast<size_t>(row) + 1;
    return next < fed_.size() && fed_[next] == token ? row + 1 : 0;
  }
  for (size_t next = static_cast<size_t>(row) + 1; next < fed_.size(); ++next) {
    if (tree_[next] == row && fed_[next] == token) return static_cast<int32_t>(next);
  }
  return 0;
}

void VerifySession::verify(std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(model_->config().vocab_size);
  const std::vector<Draft>& drafts = source_->drafts();
  VerifyRound round{.drafted = static_cast<int64_t>(drafts.size())};
  std::vector<int32_t> rows = {0};  // of the entries that stay
  while (!finished()) {
    const auto row = static_cast<size_t>(rows.back());
    // A tree's draft is accepted where it equals the token that is drawn: drafts of a tree were not drawn themselves.
    const bool rejects = sampler_.rejects() && tree_.empty() && row < drafts.size();
    const int32_t token = emitter_.emit(*this, logits.subspan(row * vocab, vocab), rejects ? &drafts[row] : nullptr);
    history_.push_back(token);
    ++round.emitted;
    const int32_t next = accepted_row(rows.back(), token);
    if (next == 0) break;
    ++round.accepted;
    if (finished()) break;
    rows.push_back(next);
  }
  activity.tokens_drafted += round.drafted;
  activity.tokens_accepted += round.accepted;
  rounds.push_back(round);

  const int64_t before = full_.length - static_cast<int64_t>(fed_.size());
  keep_rows(before, rows);
  if (target_) after_append();
  std::vector<int32_t> kept;
  for (const int32_t row : rows) kept.push_back(fed_[row]);
  source_->commit({.full = full_, .before = before, .tokens = kept, .rows = rows});
  if (offloaded_) offload(before);
}

void VerifySession::note_round() { note_bytes(*this, full_, source_->held_bytes()); }

void VerifySession::offload(int64_t before) {
  offloaded_->offload(before, activity.traffic);
  note_traffic(*this, traffic_so_far_);
  peak_host_bytes = full_.ledger->peak(Tier::host);
  peak_disk_bytes = full_.ledger->peak(Tier::disk);
}

/// Keeps the accepted `rows` of the verification's entries, which begin at position `before`; they close up.
void VerifySession::keep_rows(int64_t before, std::span<const int32_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  if (before + count == full_.length) return;
  if (rows.back() + 1 == count) {  // they lie together as it is
    full_.truncate(before + count);
    return;
  }
  for (LayerCache& layer : full_.layers) {
    EntrySegment path(layer.shape(), std::make_shared<MemoryLedger>());
    EntrySegment& tail = layer.tail();
    const int64_t first = tail.entries(0) - std::ssize(fed_);  // entry of the pass's first row
    for (const int32_t row : rows) path.append_entries(tail, first + row, 1);
    tail.truncate(first);
    tail.append_entries(path, 0, count);
  }
  full_.length = before + count;
}

/// Lets the verified cache's method pack and evict, as plain decoding does in every pass: a round ends before or where
/// anything is due.
void VerifySession::after_append() {
  const ActedLayers acted(*target_, full_);
  for (LayerContext& layer : acted.contexts(full_, full_.prompt_length, model_facts_.get(), activity)) {
    target_->after_append(layer);
  }
}

}  // namespace kvarena
