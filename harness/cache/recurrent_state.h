#pragma once
// The state of one recurrent layer for one request: what a layer without entries remembers of its tokens.

#include <cstdint>
#include <span>

#include "harness/cache/memory.h"

namespace kvarena {

/// Sizes of a gated delta-rule layer, and the weights that its state passes through.
struct RecurrentShape {
  int64_t k_heads = 0;
  int64_t v_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t taps = 0;                    // tokens that the convolution in front of the rule sees
  const float* convolution = nullptr;  // [taps, channels()]. The model's

  /// Queries, keys and values of a token.
  [[nodiscard]] int64_t channels() const { return 2 * k_heads * k_dim + v_heads * v_dim; }
  /// Numbers of a token's row: the channels, then a decay and a beta for each head of values.
  [[nodiscard]] int64_t row() const { return channels() + 2 * v_heads; }
  /// Numbers that a state holds: the channels of the last taps - 1 tokens, then a matrix a head.
  [[nodiscard]] int64_t numbers() const { return (taps - 1) * channels() + v_heads * k_dim * v_dim; }
  [[nodiscard]] int64_t bytes() const { return numbers() * static_cast<int64_t>(sizeof(float)); }
};

/// Tokens go in one by one, in ascending order; no token comes out again, so going back is going on from an earlier
/// state. Clones share memory until one of them advances.
class RecurrentState {
 public:
  RecurrentState(const RecurrentShape& shape, LedgerPtr ledger);

  /// Takes `count` tokens, rows [count, shape().row()] at distance `stride`, and gives what each reads of the state,
  /// [count, v_heads, v_dim]; null: nobody wants it.
  void advance(const float* rows, int64_t count, int64_t stride, float* out);

  [[nodiscard]] const RecurrentShape& shape() const { return shape_; }
  /// Tokens taken so far.
  [[nodiscard]] int64_t tokens() const { return tokens_; }
  /// Content now: the channels of the newest tokens, then a matrix a head.
  [[nodiscard]] std::span<const float> numbers() const;
  /// Bytes with those that are held back.
  [[nodiscard]] int64_t bytes() const;
  /// A copy in another ledger, which holds nothing back.
  [[nodiscard]] RecurrentState clone(const LedgerPtr& ledger) const;

  /// From here on keeps the present state and the rows that follow, so that rewind() can go back to any number of
  /// tokens not below the present one. Forgets what was held before.
  void hold();
  /// Forgets what is held.
  void release();
  /// Goes back to its first `tokens` tokens: their rows pass the held state again, with the same bits. hold() stays.
  void rewind(int64_t tokens);

 private:
  void take(const float* rows, int64_t count, int64_t stride, float* out);

  RecurrentShape shape_;
  LedgerPtr ledger_;
  Buffer memory_;  // numbers()
  int64_t tokens_ = 0;
  Buffer held_;              // the state at hold(); empty: nothing is held
  int64_t held_tokens_ = 0;  // then
  LedgerVector<float> log_;  // [tokens_ - held_tokens_, row()], rows since
};

}  // namespace kvarena
