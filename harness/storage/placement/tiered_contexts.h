#pragma once
// Bookkeeping of an online store: which context lies where and in which form, and the moves that carry out a policy's
// decisions, in an order in which no tier ever holds more than its capacity.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "harness/storage/placement/policy.h"

namespace kvarena::storage {

/// A move of one context's bytes. Without `from` it is new, without `to` it is removed.
struct Move {
  int64_t id = 0;
  std::optional<Choice> from;
  std::optional<Choice> to;
};

/// A copy to another tier exists beside the original until it is whole; a new form on the same tier replaces the old
/// one. Not thread-safe.
class TieredContexts {
 public:
  /// `policy` must outlive this. Throws UserError when the tiers do not pass check_tiers().
  TieredContexts(std::vector<StorageTier> tiers, const Policy& policy);

  /// Adds a new context; its `at` is decided here. Returns the moves, its own last. Throws InternalError when the id is
  /// there already.
  std::vector<Move> store(Context context);
  /// Adds several together: room is made once.
  std::vector<Move> store_all(std::vector<Context> contexts);
  /// Records a read at `now`. Places all contexts anew after as many reads as the policy says.
  std::vector<Move> access(int64_t id, double now) { return access_all({&id, 1}, now); }
  /// Records one read of several.
  std::vector<Move> access_all(std::span<const int64_t> ids, double now);
  /// Replaces a context's forms: other qualities and sizes; `at.form` must still name the form that is held, in its
  /// bytes. Takes effect with the next decision.
  void profile(int64_t id, std::vector<Form> forms);
  /// Places all contexts anew where the policy does that; nothing otherwise.
  std::vector<Move> rearrange();
  /// Forgets a context that was found to be damaged.
  std::vector<Move> remove(int64_t id);

  [[nodiscard]] const Context* find(int64_t id) const;
  [[nodiscard]] const std::vector<Context>& contexts() const { return contexts_; }
  [[nodiscard]] const std::vector<StorageTier>& tiers() const { return tiers_; }
  [[nodiscard]] int64_t used(int64_t tier) const { return used_[static_cast<size_t>(tier)]; }
  /// The most that a tier ever held, both copies of moves under way counted.
  [[nodiscard]] int64_t peak(int64_t tier) const { return peak_[static_cast<size_t>(tier)]; }
  /// Bytes ever written to a tier.
  [[nodiscard]] int64_t written(int64_t tier) const { return written_[static_cast<size_t>(tier)]; }

 private:
  /// Moves from the present state to `plan` (the same contexts, then new ones).
  std::vector<Move> carry_out(const std::vector<Context>& plan);
  bool try_move(size_t index, const Choice& to, std::vector<Move>& moves);
  void hold(size_t tier, int64_t bytes);
  Context& at(int64_t id);

  std::vector<StorageTier> tiers_;
  const Policy* policy_;
  std::vector<Context> contexts_;
  std::vector<bool> placed_;  // whether the context's bytes are stored already
  std::vector<int64_t> used_, peak_, written_;
  int64_t reads_ = 0;  // since contexts were placed anew
};

}  // namespace kvarena::storage
