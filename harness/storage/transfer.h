#pragma once
// One movement of bytes between tiers, under way on its link's thread.

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "harness/core/traffic.h"

namespace kvarena::storage {

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// Handle of a transfer: its completion event. It guards the memory at both ends: destroying the handle cancels a
/// transfer that has not begun and waits for one that is touching memory, so that afterwards nothing reads or writes
/// there. Not thread-safe; the transfer itself runs elsewhere.
class Transfer {
 public:
  Transfer() = default;  // nothing to wait for
  ~Transfer();
  Transfer(Transfer&& other) noexcept;
  Transfer& operator=(Transfer&& other) noexcept;

  /// Whether wait() would return or throw at once.
  [[nodiscard]] bool done() const;
  /// Blocks until all bytes have arrived. Throws UserError with the reason when the transfer failed, or when it is not
  /// complete after `patience_s` seconds; in the latter case it stays under way and may be waited for again.
  void wait(double patience_s = kNoLimit);

  [[nodiscard]] int64_t bytes() const;
  /// Pieces that did not adjoin the one before.
  [[nodiscard]] int64_t pieces() const;
  /// Seconds that the link was occupied by it; 0 before it is complete.
  [[nodiscard]] double link_seconds() const;
  /// Seconds that wait() has blocked so far: the time that computing did not hide.
  [[nodiscard]] double waited_seconds() const { return waited_seconds_; }
  /// Its bytes and times as those of a load, once it is complete; zeros where no bytes are moved.
  [[nodiscard]] Traffic as_load() const;

 private:
  friend class Link;
  struct State;
  explicit Transfer(std::shared_ptr<State> state) : state_(std::move(state)) {}
  void abandon() noexcept;

  std::shared_ptr<State> state_;
  double waited_seconds_ = 0;
};

}  // namespace kvarena::storage
