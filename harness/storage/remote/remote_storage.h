#pragma once
// The remote tier in another process: blocks that lie in a store (store_server.h).

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "harness/storage/remote/socket.h"
#include "harness/storage/storage.h"

namespace kvarena::storage {

/// Seconds after which a store that gives or takes nothing has failed.
inline constexpr double kStorePatience = 30;

/// A way to a store on which reads take `bytes_per_s` at most, each of those that are under way together on a
/// connection of its own; 0: as fast as it goes. The store holds back what it sends. Once a read has failed all do, at
/// once and with its reason. Thread-safe.
class StoreLine {
 public:
  /// Throws UserError where no store answers.
  StoreLine(std::string address, double bytes_per_s, double patience_s = kStorePatience);

  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] double patience_s() const { return patience_s_; }
  /// Copies bytes of a block that a RemoteStorage made in this store, and checks them.
  void read(const Block& block, int64_t at, std::span<std::byte> to);

 private:
  [[nodiscard]] Socket take();

  std::string address_;
  double bytes_per_s_;
  double patience_s_;
  std::mutex mutex_;          // guards idle_, failure_
  std::vector<Socket> idle_;  // connections
  std::string failure_;
};

/// Blocks end with the process that made them: the store frees them when it ends, however it does.
class RemoteStorage final : public Storage {
 public:
  /// Throws UserError where no store answers. Blocks read over `line`.
  explicit RemoteStorage(std::shared_ptr<StoreLine> line);

 protected:
  [[nodiscard]] std::shared_ptr<Block> make_block(const LedgerPtr& ledger, int64_t bytes) override;

 private:
  struct Connection;
  class RemoteBlock;
  friend class StoreLine;
  std::shared_ptr<StoreLine> line_;
  std::shared_ptr<Connection> connection_;  // lives with the blocks
};

/// Bytes a second that reading the whole block takes over the line: the median of three times.
[[nodiscard]] double measured_rate(StoreLine& line, const Block& block);

}  // namespace kvarena::storage
