#include "harness/cache/memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace kvarena {
namespace {

constexpr std::align_val_t kAlignment{64};  // one cache line, one AVX-512 register

/// Stands in front of a block of memory.
struct alignas(64) Holders {
  int64_t room;                    // bytes of the block
  std::atomic<int64_t> count = 1;  // of buffers
};

Holders& holders(std::byte* data) { return *reinterpret_cast<Holders*>(data - sizeof(Holders)); }

/// Bytes that a block for so many has room for: sizes go up in sixteenths, so that most buffers grow where they are and
/// a block that was let go fits others.
int64_t room_for(int64_t bytes) {
  const auto size = static_cast<uint64_t>(bytes);
  const uint64_t step = std::max<uint64_t>(std::bit_floor(size) / 16, 1);
  return static_cast<int64_t>((size + step - 1) / step * step);
}

/// A block that one buffer holds, its content undefined, with room for at least a thirty-second more.
std::byte* allocate(Tier tier, int64_t bytes) {
  const int64_t room = room_for(bytes + bytes / 32);
  void* const block = ::operator new(sizeof(Holders) + static_cast<size_t>(room), kAlignment);
  new (block) Holders{.room = room};
  MemoryLedger::process().add_own(tier, bytes);
  return static_cast<std::byte*>(block) + sizeof(Holders);
}

/// Ends one buffer's hold on a block.
void let_go(std::byte* data, Tier tier, int64_t bytes) noexcept {
  Holders& all = holders(data);
  if (all.count.fetch_sub(1) > 1) return;
  MemoryLedger::process().add_own(tier, -bytes);
  ::operator delete(&all, kAlignment);
}

}  // namespace

MemoryLedger& MemoryLedger::process() noexcept {
  static MemoryLedger all;
  return all;
}

void MemoryLedger::add(Tier tier, int64_t bytes) noexcept {
  add_own(tier, bytes);
  process().add_own(tier, bytes);
}

void MemoryLedger::add_own(Tier tier, int64_t bytes) noexcept {
  const auto t = static_cast<size_t>(tier);
  const int64_t now = current_[t].fetch_add(bytes) + bytes;
  int64_t seen = peak_[t].load();
  while (now > seen && !peak_[t].compare_exchange_weak(seen, now)) {
  }
}

int64_t MemoryLedger::current(Tier tier) const noexcept { return current_[static_cast<size_t>(tier)].load(); }

int64_t MemoryLedger::peak(Tier tier) const noexcept { return peak_[static_cast<size_t>(tier)].load(); }

int64_t MemoryLedger::current() const noexcept {
  int64_t total = 0;
  for (const auto& tier : current_) total += tier.load();
  return total;
}

void MemoryLedger::restart_peaks() noexcept {
  for (size_t tier = 0; tier < peak_.size(); ++tier) peak_[tier] = current_[tier].load();
}

Buffer::Buffer(LedgerPtr ledger, Tier tier, int64_t bytes, int64_t kept)
    : ledger_(std::move(ledger)), tier_(tier), bytes_(bytes) {
  if (bytes_ == 0) return;
  data_ = allocate(tier_, bytes_);
  std::memset(data_ + kept, 0, static_cast<size_t>(bytes_ - kept));
  ledger_->add_own(tier_, bytes_);
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  let_go(data_, tier_, bytes_);
  ledger_->add_own(tier_, -bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : ledger_(std::move(other.ledger_)),
      tier_(other.tier_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(tier_, other.tier_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

std::byte* Buffer::data() {
  if (data_ == nullptr || holders(data_).count == 1) return data_;
  std::byte* const own = allocate(tier_, bytes_);
  std::memcpy(own, data_, static_cast<size_t>(bytes_));
  let_go(std::exchange(data_, own), tier_, bytes_);
  return data_;
}

void Buffer::resize(const LedgerPtr& ledger, int64_t bytes) {
  if (bytes == bytes_) return static_cast<void>(data());
  const int64_t common = std::min(bytes, bytes_);
  const bool fits = common > 0 && (bytes > bytes_ ? bytes <= holders(data_).room : room_for(bytes) == room_for(bytes_));
  if (fits && ledger == ledger_ && holders(data_).count == 1) {
    // Both sizes count for a moment, as where it moves: peaks do not depend on rooms.
    ledger_->add(tier_, bytes);
    ledger_->add(tier_, -std::exchange(bytes_, bytes));
    if (bytes > common) std::memset(data_ + common, 0, static_cast<size_t>(bytes - common));
    return;
  }
  Buffer resized(ledger, tier_, bytes, /*kept=*/common);
  if (common > 0) std::memcpy(resized.data_, data_, static_cast<size_t>(common));
  *this = std::move(resized);
}

Buffer Buffer::clone(LedgerPtr ledger) const {
  Buffer copy;
  copy.ledger_ = std::move(ledger);
  copy.tier_ = tier_;
  if (data_ == nullptr) return copy;
  ++holders(data_).count;
  copy.data_ = data_;
  copy.bytes_ = bytes_;
  copy.ledger_->add_own(tier_, bytes_);
  return copy;
}

}  // namespace kvarena
