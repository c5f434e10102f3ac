#include "harness/cache/memory.h"

#include <cstring>
#include <new>
#include <utility>

namespace kvarena {
namespace {

constexpr std::align_val_t kAlignment{64};  // one cache line, one AVX-512 register

}  // namespace

void MemoryLedger::add(Tier tier, int64_t bytes) noexcept {
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

Buffer::Buffer(LedgerPtr ledger, Tier tier, int64_t bytes) : ledger_(std::move(ledger)), tier_(tier), bytes_(bytes) {
  if (bytes_ == 0) return;
  data_ = static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes_), kAlignment));
  std::memset(data_, 0, static_cast<size_t>(bytes_));
  ledger_->add(tier_, bytes_);
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  ::operator delete(data_, kAlignment);
  ledger_->add(tier_, -bytes_);
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

Buffer Buffer::clone(LedgerPtr ledger) const {
  Buffer copy(std::move(ledger), tier_, bytes_);
  if (bytes_ > 0) std::memcpy(copy.data_, data_, static_cast<size_t>(bytes_));
  return copy;
}

}  // namespace kvarena
