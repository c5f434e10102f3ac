#pragma once
// One direction of the link between two tiers: transfers run on a thread of its own, one after another.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "harness/storage/link_spec.h"
#include "harness/storage/storage.h"
#include "harness/storage/transfer.h"

namespace kvarena::storage {

/// Bytes to read from offset `at` of a block to `memory`.
struct ReadPiece {
  int64_t at = 0;
  std::byte* memory = nullptr;
  int64_t bytes = 0;
};

/// Bytes to write from `memory` to offset `at` of a block.
struct WritePiece {
  int64_t at = 0;
  const std::byte* memory = nullptr;
  int64_t bytes = 0;
};

/// Traffic of a link since it was made.
struct LinkTotals {
  int64_t transfers = 0;
  int64_t bytes = 0;
  int64_t pieces = 0;
  double busy_seconds = 0;
};

/// Called on the link's thread before each transfer, counted from 0: throwing makes that transfer fail, sleeping makes
/// it slow. For tests.
using LinkFault = std::function<void(int64_t transfer)>;

/// A link with a rate copies the bytes with the processor and is then busy for the time that its spec says, counted
/// from when the transfer was asked for and the link was free. Other threads compute meanwhile, so that overlap is
/// measured, not assumed. A link without a rate takes the time that the tiers really take. Thread-safe. Destroying a
/// link fails the transfers that have not begun.
class Link {
 public:
  explicit Link(LinkSpec spec, LinkFault fault = {});
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Pieces lie within the block; their memory belongs to the transfer until it is complete or its handle dies.
  [[nodiscard]] Transfer read(std::shared_ptr<const Block> from, std::vector<ReadPiece> pieces);
  [[nodiscard]] Transfer write(std::shared_ptr<Block> to, std::vector<WritePiece> pieces);
  /// Transfers bytes that lie in no block: `move` copies so many bytes in so many separate pieces, on the link's
  /// thread. The memory it touches belongs to the transfer until it is complete or its handle dies.
  [[nodiscard]] Transfer carry(int64_t bytes, int64_t pieces, std::function<void()> move);

  [[nodiscard]] const LinkSpec& spec() const { return spec_; }
  [[nodiscard]] LinkTotals totals() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    std::shared_ptr<Transfer::State> state;
    Clock::time_point queued;
  };

  template <class Piece>
  Transfer submit(const std::vector<Piece>& pieces, int64_t block_bytes, std::function<void()> move);
  void work();
  void carry_out(const Job& job);

  const LinkSpec spec_;
  const LinkFault fault_;
  mutable std::mutex mutex_;  // guards queue_, running_, stopping_, totals_
  std::condition_variable work_;
  std::deque<Job> queue_;
  std::shared_ptr<Transfer::State> running_;
  bool stopping_ = false;
  LinkTotals totals_;
  Clock::time_point free_at_;  // used by the worker thread alone
  std::thread worker_;
};

}  // namespace kvarena::storage
