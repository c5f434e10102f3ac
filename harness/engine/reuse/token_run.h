#pragma once
// Tokens on their way into a cache of their own, in passes that others may share.

#include "harness/engine/session/shared_pass.h"

namespace kvarena {

/// Reads tokens from position 0 on. The result does not depend on how they are cut into passes, bit for bit.
class TokenRun final : public PassMember {
 public:
  /// Reads by the first `layers` of the model, 0: all, under hooks that may be null. All of them outlive the run.
  TokenRun(Transformer& model, std::span<const int32_t> tokens, AttentionHooks* hooks = nullptr, int64_t layers = 0);

  /// Tokens that have not been through the model.
  [[nodiscard]] int64_t remaining() const { return std::ssize(tokens_) - done_; }
  /// Feeds at most so many tokens in each pass from now on.
  void set_chunk(int64_t tokens) { chunk_ = tokens; }
  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> /*logits*/) override {}
  /// Throws UserError with the reason.
  void failed(const std::string& reason) override;
  /// Gives the cache, once nothing remains.
  [[nodiscard]] KvCache take() { return std::move(cache_); }
  /// Bytes that the cache holds now.
  [[nodiscard]] int64_t bytes() const { return cache_.ledger->current(Tier::device); }

 private:
  std::span<const int32_t> tokens_;
  AttentionHooks* hooks_;
  int64_t layers_;
  KvCache cache_;
  int64_t chunk_ = 512;  // bounds activations
  int64_t done_ = 0;     // tokens in passes so far, the one under way included
};

}  // namespace kvarena
