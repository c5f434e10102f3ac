#pragma once
// Memory of a tier: blocks of bytes under a capacity that all requests share.

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "harness/cache/memory.h"
#include "harness/core/error.h"
#include "harness/storage/transfer.h"
#include "harness/storage/unlimited.h"

namespace kvarena::storage {

[[nodiscard]] const char* to_string(Tier tier);

/// A tier that has no room: the request that wanted it fails, others go on.
class TierFull : public UserError {
 public:
  using UserError::UserError;
};

/// Bytes taken of a tier's capacity. Thread-safe.
class Capacity {
 public:
  Capacity(Tier tier, int64_t bytes) : tier_(tier), bytes_(bytes) {}

  /// Takes room, waiting up to `patience_s` for others to give theirs back. Throws TierFull, and takes nothing, when it
  /// does not come free; at once when the tier is smaller than what is asked.
  void take(int64_t bytes, double patience_s);
  void give_back(int64_t bytes) noexcept;
  [[nodiscard]] int64_t used() const;
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  const Tier tier_;
  const int64_t bytes_;
  mutable std::mutex mutex_;  // guards used_
  std::condition_variable freed_;
  int64_t used_ = 0;
};

/// Bytes that live in a tier. Their room is given back, and taken out of the ledger, when the block dies.
/// Different threads may use different ranges at a time.
class Block {
 public:
  virtual ~Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  [[nodiscard]] virtual int64_t bytes() const = 0;
  /// Copies to.size() bytes from offset `at`. Throws UserError naming the place when the tier cannot give them.
  virtual void read(int64_t at, std::span<std::byte> to) const = 0;
  /// The bytes where they lie, as long as the block lives; empty where they do not lie in main memory.
  [[nodiscard]] virtual std::span<const std::byte> memory() const { return {}; }
  /// Copies from.size() bytes to offset `at`. Throws UserError naming the place.
  virtual void write(int64_t at, std::span<const std::byte> from) = 0;

 protected:
  Block() = default;
};

class Storage {
 public:
  Storage(Tier tier, int64_t capacity) : tier_(tier), capacity_(std::make_shared<Capacity>(tier, capacity)) {}
  virtual ~Storage() = default;

  [[nodiscard]] Tier tier() const { return tier_; }
  [[nodiscard]] int64_t capacity() const { return capacity_->bytes(); }
  [[nodiscard]] int64_t used() const { return capacity_->used(); }
  /// A block of zeros that `ledger` counts. Throws TierFull when there is no room within `patience_s` seconds.
  [[nodiscard]] std::shared_ptr<Block> allocate(const LedgerPtr& ledger, int64_t bytes, double patience_s = 0);

 protected:
  /// Room for the block was taken; the block gives it back.
  [[nodiscard]] virtual std::shared_ptr<Block> make_block(const LedgerPtr& ledger, int64_t bytes) = 0;
  [[nodiscard]] const std::shared_ptr<Capacity>& room() const { return capacity_; }

 private:
  Tier tier_;
  std::shared_ptr<Capacity> capacity_;  // outlives the storage while blocks live
};

/// Main memory, whichever tier it stands for.
class MemoryStorage final : public Storage {
 public:
  using Storage::Storage;

 protected:
  [[nodiscard]] std::shared_ptr<Block> make_block(const LedgerPtr& ledger, int64_t bytes) override;
};

}  // namespace kvarena::storage
