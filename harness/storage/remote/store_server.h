#pragma once
// A store of caches for other processes: blocks in this one's memory, read and written over sockets.

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "harness/storage/remote/frames.h"
#include "harness/storage/remote/socket.h"
#include "harness/storage/storage.h"

namespace kvarena::storage {

/// Reads that were answered whole, and their blocks' bytes.
struct StoreTotals {
  int64_t reads = 0;
  int64_t bytes = 0;
};

/// Serves from construction to destruction, each connection on a thread of its own. A block lives until it is released
/// or the connection that allocated it ends; every connection may read it. Replies to a connection are sent at the rate
/// that it asked for: this is where a slow link is made.
class StoreServer {
 public:
  /// Throws UserError when the address cannot be listened at.
  StoreServer(const std::string& address, int64_t capacity_bytes);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  [[nodiscard]] const std::string& address() const { return listener_.address(); }
  [[nodiscard]] StoreTotals totals() const;
  /// Bytes of blocks that live.
  [[nodiscard]] int64_t used() const { return memory_.used(); }

 private:
  struct Connection {
    Socket socket;
    double bytes_per_s = 0;
    std::set<uint64_t> allocated = {};
    std::atomic<bool> ended = false;
    std::thread thread = {};
  };
  void take_connections();
  void serve(Connection& connection);
  void answer(Connection& connection, const StoreRequest& request);
  void allocate(Connection& connection, const StoreRequest& request);
  void write(Connection& connection, const StoreRequest& request);
  void read(Connection& connection, const StoreRequest& request);
  /// Sends a block's bytes and their checksum, no faster than the connection's rate.
  void send_paced(const Connection& connection, std::span<const std::byte> bytes);
  [[nodiscard]] std::shared_ptr<Block> find(const StoreRequest& request) const;
  void release(Connection& connection, uint64_t block);

  MemoryStorage memory_;
  LedgerPtr ledger_ = std::make_shared<MemoryLedger>();
  mutable std::mutex mutex_;  // guards blocks_, totals_, stopping_
  std::condition_variable stopped_;
  std::map<uint64_t, std::shared_ptr<Block>> blocks_;
  uint64_t next_ = 1;
  StoreTotals totals_;
  bool stopping_ = false;
  Listener listener_;
  std::list<Connection> connections_;  // of the listening thread
  std::thread listening_;
};

}  // namespace kvarena::storage
