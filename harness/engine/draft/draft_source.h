#pragma once
// Where a verification session's drafts come from: the target on a compressed cache, on part of its full one or with
// its first layers, another checkpoint, or a rule.

#include <memory>
#include <span>
#include <vector>

#include "harness/engine/session/prefill.h"
#include "harness/method/verifier.h"
#include "harness/model/sampling.h"

namespace kvarena {

/// The request of a round: the history that drafts continue, and how many are wanted.
struct DraftRound {
  std::span<const int32_t> history;  // prompt and emitted tokens; the last one is in no cache
  int64_t limit = 0;                 // tokens to draft at most; of a tree, on one path
  int64_t room = 0;                  // tokens of a tree at most; 0: a chain is wanted
  int64_t passes = 0;                // of the target on a compressed cache, at most
};

/// The entries that a verification left in the full cache, from position `before` on.
struct Verified {
  const KvCache& full;
  int64_t before = 0;
  std::span<const int32_t> tokens;
  std::span<const int32_t> rows;  // of the verification's pass that they were, ascending
};

/// One request's drafter; this one drafts nothing. A round: begin(), passes of the target while it wants_pass(), then
/// drafts() are verified, then commit() tells which of the verified entries stay.
class DraftSource {
 public:
  virtual ~DraftSource() = default;

  virtual void begin(const DraftRound& /*round*/) {}
  /// Whether the target model has to run for it before drafts() is complete.
  [[nodiscard]] virtual bool wants_pass() const { return false; }
  [[nodiscard]] virtual SequencePass next_pass() { return {}; }
  virtual void consume(std::span<const float> /*logits*/) {}
  /// Ends the round's drafting: wants_pass() is false from here on. For sources that ask for passes.
  virtual void end_drafting() {}
  /// Hooks that watch the verification's pass over the full cache; null for none.
  [[nodiscard]] virtual AttentionHooks* verification_hooks() { return nullptr; }
  [[nodiscard]] const std::vector<Draft>& drafts() const { return drafts_; }
  /// The parents of a tree's drafts: a lower index, or -1 for one that follows the history. Empty: each draft follows
  /// the one before it.
  [[nodiscard]] std::span<const int32_t> parents() const { return parents_; }

  virtual void commit(const Verified& /*verified*/) {}

  /// Bytes held between rounds, now, and at most so far.
  [[nodiscard]] virtual int64_t resident_bytes() const { return 0; }
  /// Bytes held between rounds by layers with a sliding window.
  [[nodiscard]] virtual int64_t sliding_bytes() const { return 0; }
  /// Whether some of these are those of a codec that packs nothing.
  [[nodiscard]] virtual bool simulated_bytes() const { return false; }
  [[nodiscard]] virtual int64_t held_bytes() const { return resident_bytes(); }
  [[nodiscard]] virtual int64_t peak_bytes() const { return 0; }
  /// Bytes that a round of `tokens` drafts may hold beside those between rounds and its entries' own.
  [[nodiscard]] virtual int64_t round_bytes(int64_t /*tokens*/) const { return 0; }

 protected:
  std::vector<Draft> drafts_;     // of the present round
  std::vector<int32_t> parents_;  // of a tree of them
};

/// Draws a drafter's tokens as the verifier asks: `position` is that of the drafted token in its sequence.
class DraftSampler {
 public:
  DraftSampler(DraftSampling mode, const SamplingSettings& settings) : mode_(mode), settings_(settings) {}

  [[nodiscard]] Draft draw(std::span<const float> logits, int64_t position) const;
  /// Whether accepted tokens are decided by rejection sampling.
  [[nodiscard]] bool rejects() const { return mode_ == DraftSampling::rejection && !settings_.greedy(); }

 private:
  DraftSampling mode_;
  SamplingSettings settings_;
};

class SelectionMeter;
class Tokenizer;

/// Parts of a session that a source uses; they must outlive the source.
struct DraftContext {
  KvCache* full = nullptr;                // the cache that verifications attend to
  bool compressed = false;                // whether that is not full KV but Verifier::verified_cache()
  Activity* activity = nullptr;           // counts what a compressor does
  std::span<const ResultTokens> results;  // SessionOptions::results
  SelectionMeter* meter = nullptr;        // of what a compressed cache attends to; null when nothing is measured
  const Tokenizer* tokenizer = nullptr;   // the target's; null where there is no text
};

/// The source of `verifier`'s drafts at the end of the prompt. The verifier must outlive it. Throws UserError where the
/// drafter's weights are absent or of another model.
[[nodiscard]] std::unique_ptr<DraftSource> make_draft_source(Transformer& model, const Prefill& prompt,
                                                             const Verifier& verifier, const DraftSampler& sampler,
                                                             const DraftContext& session);

}  // namespace kvarena
