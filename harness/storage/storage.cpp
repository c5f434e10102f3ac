#include "harness/storage/storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace kvarena::storage {
namespace {

class MemoryBlock final : public Block {
 public:
  MemoryBlock(LedgerPtr ledger, Tier tier, int64_t bytes, std::shared_ptr<Capacity> room)
      : buffer_(std::move(ledger), tier, bytes), room_(std::move(room)) {}
  ~MemoryBlock() override { room_->give_back(buffer_.bytes()); }

  [[nodiscard]] int64_t bytes() const override { return buffer_.bytes(); }
  void read(int64_t at, std::span<std::byte> to) const override {
    std::copy_n(buffer_.data() + at, to.size(), to.data());
  }
  [[nodiscard]] std::span<const std::byte> memory() const override {
    return {buffer_.data(), static_cast<size_t>(buffer_.bytes())};
  }
  void write(int64_t at, std::span<const std::byte> from) override { std::ranges::copy(from, buffer_.data() + at); }

 private:
  Buffer buffer_;
  std::shared_ptr<Capacity> room_;
};

}  // namespace

const char* to_string(Tier tier) {
  switch (tier) {
    case Tier::device: return "device";
    case Tier::host: return "host";
    case Tier::disk: return "disk";
    case Tier::remote: return "remote";
  }
  return "";
}

void Capacity::take(int64_t bytes, double patience_s) {
  std::unique_lock lock(mutex_);
  const auto fits = [&] { return bytes <= bytes_ - used_; };
  if (!fits() && bytes <= bytes_ && patience_s > 0) {
    if (patience_s == kNoLimit) {
      freed_.wait(lock, fits);
    } else {
      freed_.wait_for(lock, std::chrono::duration<double>(patience_s), fits);
    }
  }
  if (!fits()) {
    throw TierFull(describe({.place = fmt::format("{} tier", to_string(tier_)),
                             .found = fmt::format("{} bytes asked for beside {} in use", bytes, used_),
                             .expected = fmt::format("at most {} bytes together", bytes_),
                             .action = "run fewer requests at a time or give the tier more room"}));
  }
  used_ += bytes;
}

void Capacity::give_back(int64_t bytes) noexcept {
  {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
  }
  freed_.notify_all();
}

int64_t Capacity::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::shared_ptr<Block> Storage::allocate(const LedgerPtr& ledger, int64_t bytes, double patience_s) {
  KVARENA_ASSERT(bytes > 0, fmt::format("a block of {} bytes", bytes));
  capacity_->take(bytes, patience_s);
  try {
    return make_block(ledger, bytes);
  } catch (...) {
    capacity_->give_back(bytes);
    throw;
  }
}

std::shared_ptr<Block> MemoryStorage::make_block(const LedgerPtr& ledger, int64_t bytes) {
  return std::make_shared<MemoryBlock>(ledger, tier(), bytes, room());
}

}  // namespace kvarena::storage
