#pragma once
// Memory tiers and the one place where cache bytes are counted: at allocation.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace kvarena {

enum class Tier { device, host, disk, remote };
inline constexpr int kTiers = 4;

/// Bytes allocated now and at most, per tier; thread-safe. A request's ledger says what the request would hold by
/// itself: memory that several share counts whole in the ledger of each, and once in the process's.
class MemoryLedger {
 public:
  /// Counts all that the process's other ledgers count, shared memory once.
  [[nodiscard]] static MemoryLedger& process() noexcept;

  void add(Tier tier, int64_t bytes) noexcept;  // negative to release
  /// Counts here alone: memory that is shared.
  void add_own(Tier tier, int64_t bytes) noexcept;
  /// Forgets the peaks so far.
  void restart_peaks() noexcept;
  [[nodiscard]] int64_t current(Tier tier) const noexcept;
  [[nodiscard]] int64_t peak(Tier tier) const noexcept;
  [[nodiscard]] int64_t current() const noexcept;  // over all tiers

 private:
  std::array<std::atomic<int64_t>, kTiers> current_{};
  std::array<std::atomic<int64_t>, kTiers> peak_{};
};

using LedgerPtr = std::shared_ptr<MemoryLedger>;

/// A block of bytes, aligned to 64, zeroed, counted in its ledger as long as it lives. Move-only. Clones share its
/// memory until one of them is written. The device tier of a CPU run is main memory.
class Buffer {
 public:
  Buffer() = default;
  Buffer(LedgerPtr ledger, Tier tier, int64_t bytes) : Buffer(std::move(ledger), tier, bytes, 0) {}
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  /// For writing, from here on in memory of its own: what clones share stays as it is.
  [[nodiscard]] std::byte* data();
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }
  [[nodiscard]] int64_t bytes() const noexcept { return bytes_; }
  /// Holds so many bytes from here on, in memory of its own, which stays where it is while it has room: the first as
  /// they were, others 0.
  void resize(const LedgerPtr& ledger, int64_t bytes);
  /// Shares the content, counted in another ledger.
  [[nodiscard]] Buffer clone(LedgerPtr ledger) const;

 private:
  /// The first `kept` bytes are undefined.
  Buffer(LedgerPtr ledger, Tier tier, int64_t bytes, int64_t kept);

  LedgerPtr ledger_;
  Tier tier_ = Tier::device;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// Counts what a standard container really allocates.
template <typename T>
class LedgerAllocator {
 public:
  using value_type = T;
  explicit LedgerAllocator(LedgerPtr ledger, Tier tier = Tier::device) : ledger_(std::move(ledger)), tier_(tier) {}
  template <typename U>  // NOLINTNEXTLINE(google-explicit-constructor): containers rebind their allocator
  LedgerAllocator(const LedgerAllocator<U>& other) : ledger_(other.ledger()), tier_(other.tier()) {}

  T* allocate(size_t n) {
    T* block = std::allocator<T>().allocate(n);
    ledger_->add(tier_, static_cast<int64_t>(n * sizeof(T)));
    return block;
  }
  void deallocate(T* block, size_t n) noexcept {
    ledger_->add(tier_, -static_cast<int64_t>(n * sizeof(T)));
    std::allocator<T>().deallocate(block, n);
  }
  [[nodiscard]] const LedgerPtr& ledger() const { return ledger_; }
  [[nodiscard]] Tier tier() const { return tier_; }
  template <typename U>
  bool operator==(const LedgerAllocator<U>& other) const {
    return ledger_ == other.ledger() && tier_ == other.tier();
  }

 private:
  LedgerPtr ledger_;
  Tier tier_;
};

/// A vector whose memory is counted: metadata of segments, running scores, page bounds.
template <typename T>
using LedgerVector = std::vector<T, LedgerAllocator<T>>;

}  // namespace kvarena
