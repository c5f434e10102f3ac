#pragma once
// Interface of the transport between the ranks of a model.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "harness/core/error.h"
#include "harness/model/ranks/share.h"

namespace kvarena {

/// A rank died before all had met.
class RankLost : public UserError {
 public:
  using UserError::UserError;
};

/// A message under way.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Waits until it has arrived, or its memory may be used again. Throws UserError naming the rank that is lost.
  virtual void wait() = 0;
};

/// Limits of the wait for a message.
enum class WaitLimit {
  answer,  // the other rank is at work on it: the channel's limit
  idle,    // it comes when there is something to do
};

/// Messages between any two ranks of a model. Those from one to another arrive in the order in which they were sent; a
/// message has the length that the receiver expects. For one thread.
class RankChannel {
 public:
  virtual ~RankChannel() = default;
  [[nodiscard]] virtual Share share() const = 0;
  /// Called once, when this rank has loaded its share: returns when all ranks have. Throws UserError naming the rank
  /// that cannot come, with its reason, RankLost where it died.
  virtual void meet() = 0;
  /// How other ranks have ended, as far as that is known; empty while all live. Thread-safe.
  [[nodiscard]] virtual std::string lost() { return ""; }
  /// Begins to send or receive and returns; `data` must stay until the transfer was waited for, or is destroyed.
  [[nodiscard]] virtual std::unique_ptr<Transfer> send(int64_t to, std::span<const float> data) = 0;
  [[nodiscard]] virtual std::unique_ptr<Transfer> receive(int64_t from, std::span<float> data,
                                                          WaitLimit wait_limit = WaitLimit::answer) = 0;
};

}  // namespace kvarena
