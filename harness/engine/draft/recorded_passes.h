#pragma once
// Passes over a compressed cache that can be given to its method again, without the model.

#include <vector>

#include "harness/engine/session/forwarding_hooks.h"

namespace kvarena {

/// Stands between the passes of a round and the hooks of the method whose cache they draft on, and keeps what these are
/// shown: the entries of each token, its queries, softmax denominators and attention inputs. A method decides by
/// nothing else, so replay() leaves a cache as passes of the same tokens would.
class RecordedPasses final : public ForwardingHooks {
 public:
  /// Counts what it keeps in `ledger`. hidden_size: of the model.
  RecordedPasses(LedgerPtr ledger, int64_t hidden_size) : ledger_(std::move(ledger)), hidden_size_(hidden_size) {}

  void before_pass(KvCache& cache, std::span<const int32_t> tokens) override;
  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override;
  /// Keeps what a layer's attention showed, and tells nobody.
  void note(int64_t layer, const LayerCache& cache, const LayerQueries& queries, const float* lse);

  /// Forgets all passes.
  void clear();
  /// Forgets the tokens of the newest pass behind its first `count`.
  void cut_newest(int64_t count);
  /// The first `count` queries of the newest pass, with their softmax denominators [count, q_heads].
  struct Newest {
    LayerQueries queries;
    const float* lse = nullptr;
  };
  [[nodiscard]] Newest newest(int64_t layer, int64_t count) const;

  /// Appends the first `count` recorded tokens to `cache`, which is as it was before the first pass, pass by pass, with
  /// `hooks` called as a pass of the model calls them.
  void replay(KvCache& cache, int64_t count, AttentionHooks& hooks) const;

  [[nodiscard]] int64_t bytes() const;
  /// At most, of so many tokens of `cache`.
  [[nodiscard]] int64_t bytes_of(const KvCache& cache, int64_t tokens) const;

 private:
  /// One layer's part, of all tokens in order.
  struct Layer {
    Layer(const LayerShape& shape, const LedgerPtr& ledger)
        : entries(shape, ledger),
          q(LedgerAllocator<float>(ledger)),
          lse(LedgerAllocator<float>(ledger)),
          hidden(LedgerAllocator<float>(ledger)) {}
    EntrySegment entries;
    LedgerVector<float> q;       // [tokens, q_heads, head_dim]
    LedgerVector<float> lse;     // [tokens, q_heads]
    LedgerVector<float> hidden;  // [tokens, hidden_size], empty when nobody asked
  };
  [[nodiscard]] LayerQueries queries_of(int64_t layer, int64_t first, int64_t count) const;

  LedgerPtr ledger_;
  int64_t hidden_size_;
  std::vector<Layer> layers_;
  std::vector<int32_t> tokens_;
  std::vector<int64_t> begins_;  // first token of each pass
  int64_t position_ = 0;         // of the first token
};

}  // namespace kvarena
