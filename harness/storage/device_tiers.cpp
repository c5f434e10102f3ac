#include "harness/storage/device_tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cells/cells.h"

namespace kvarena::storage {
namespace {

/// Base of both kinds of blocks: gives capacity back and keeps the ledger.
class CountedBlock : public PlacedBlock {
 public:
  CountedBlock(LedgerPtr ledger, Tier tier, int64_t bytes, std::shared_ptr<Capacity> room)
      : ledger_(std::move(ledger)), tier_(tier), bytes_(bytes), room_(std::move(room)) {
    ledger_->add(tier_, bytes_);
  }
  ~CountedBlock() override {
    ledger_->add(tier_, -bytes_);
    room_->give_back(bytes_);
  }
  [[nodiscard]] int64_t bytes() const override { return bytes_; }

 private:
  LedgerPtr ledger_;
  Tier tier_;
  int64_t bytes_;
  std::shared_ptr<Capacity> room_;
};

class DeviceBlock final : public CountedBlock {
 public:
  DeviceBlock(kernels::CudaBuffer memory, const LedgerPtr& ledger, int64_t bytes, std::shared_ptr<Capacity> room)
      : CountedBlock(ledger, Tier::device, bytes, std::move(room)), memory_(std::move(memory)) {}

  [[nodiscard]] std::byte* address() const override { return static_cast<std::byte*>(memory_.data()); }
  void read(int64_t at, std::span<std::byte> to) const override {
    const kernels::CudaQueue queue;
    kernels::cuda_download(to.data(), address() + at, std::ssize(to), queue.stream());
    kernels::cuda_synchronize(queue.stream());
  }
  void write(int64_t at, std::span<const std::byte> from) override {
    const kernels::CudaQueue queue;
    kernels::cuda_upload(address() + at, from.data(), std::ssize(from), queue.stream());
    kernels::cuda_synchronize(queue.stream());
  }

 private:
  kernels::CudaBuffer memory_;
};

class PinnedBlock final : public CountedBlock {
 public:
  PinnedBlock(std::unique_ptr<kernels::PinnedBuffer> memory, const LedgerPtr& ledger, int64_t bytes,
              std::shared_ptr<Capacity> room)
      : CountedBlock(ledger, Tier::host, bytes, std::move(room)), memory_(std::move(memory)) {}

  [[nodiscard]] std::byte* address() const override { return static_cast<std::byte*>(memory_->data()); }
  [[nodiscard]] std::span<const std::byte> memory() const override { return {address(), static_cast<size_t>(bytes())}; }
  void read(int64_t at, std::span<std::byte> to) const override { std::memcpy(to.data(), address() + at, to.size()); }
  void write(int64_t at, std::span<const std::byte> from) override {
    std::memcpy(address() + at, from.data(), from.size());
  }

 private:
  std::unique_ptr<kernels::PinnedBuffer> memory_;
};

/// Rows of a block as entries' values: a row is an entry of 16-bit numbers.
kernels::Cells rows_of(const PlacedBlock& block, int64_t row_bytes) {
  return {.kind = kernels::CellKind::values,
          .dtype = kernels::DType::bf16,
          .head_dim = row_bytes / 2,
          .data = block.address()};
}

int64_t separate_pieces(const std::vector<int32_t>& rows) {
  int64_t count = 0;
  for (size_t i = 0; i < rows.size(); ++i) count += i == 0 || rows[i] != rows[i - 1] + 1 ? 1 : 0;
  return count;
}

}  // namespace

std::shared_ptr<Block> DeviceStorage::make_block(const LedgerPtr& ledger, int64_t bytes) {
  kernels::CudaBuffer memory(bytes);
  const std::vector<std::byte> zeros(static_cast<size_t>(std::min<int64_t>(bytes, 1 << 24)));
  for (int64_t at = 0; at < bytes; at += std::ssize(zeros)) {
    kernels::cuda_upload(static_cast<std::byte*>(memory.data()) + at, zeros.data(),
                         std::min(bytes - at, std::ssize(zeros)), nullptr);
  }
  kernels::cuda_synchronize(nullptr);
  return std::make_shared<DeviceBlock>(std::move(memory), ledger, bytes, room());
}

std::shared_ptr<Block> PinnedStorage::make_block(const LedgerPtr& ledger, int64_t bytes) {
  auto memory = std::make_unique<kernels::PinnedBuffer>(bytes);
  std::memset(memory->data(), 0, static_cast<size_t>(bytes));
  return std::make_shared<PinnedBlock>(std::move(memory), ledger, bytes, room());
}

std::shared_ptr<PlacedBlock> placed(const std::shared_ptr<Block>& block) {
  auto found = std::dynamic_pointer_cast<PlacedBlock>(block);
  KVARENA_ASSERT(found != nullptr, "a block that the device does not reach");
  return found;
}

Bus::Bus(LinkFault fault) : link_(link_named("real", "bus"), std::move(fault)) {}

void Bus::complete() {
  moved_.record(queue_.stream());
  moved_.wait();
}

Transfer Bus::copy(const std::shared_ptr<const PlacedBlock>& from, const std::shared_ptr<PlacedBlock>& to,
                   std::vector<BusPiece> pieces) {
  int64_t bytes = 0;
  for (const BusPiece& piece : pieces) {
    KVARENA_ASSERT(piece.from >= 0 && piece.to >= 0 && piece.bytes >= 0 && piece.from + piece.bytes <= from->bytes() &&
                       piece.to + piece.bytes <= to->bytes(),
                   fmt::format("{} bytes at {} and {}", piece.bytes, piece.from, piece.to));
    bytes += piece.bytes;
  }
  const int64_t count = std::ssize(pieces);
  return link_.carry(bytes, count, [this, from, to, pieces = std::move(pieces)] {
    for (const BusPiece& piece : pieces) {
      kernels::cuda_copy(to->address() + piece.to, from->address() + piece.from, piece.bytes, queue_.stream());
    }
    complete();
  });
}

Transfer Bus::gather(const std::shared_ptr<const PlacedBlock>& from, const std::shared_ptr<PlacedBlock>& to,
                     const std::vector<int32_t>& rows, int64_t row_bytes) {
  const int64_t count = std::ssize(rows);
  KVARENA_ASSERT(row_bytes > 0 && row_bytes % (2 * kernels::kCell) == 0 && count * row_bytes <= to->bytes(),
                 fmt::format("{} rows of {} bytes", count, row_bytes));
  std::vector<int32_t> sources;
  for (const int32_t row : rows) {
    KVARENA_ASSERT(row >= 0 && (row + 1) * row_bytes <= from->bytes(), fmt::format("row {}", row));
    sources.push_back(~row);
  }
  return link_.carry(count * row_bytes, separate_pieces(rows), [this, from, to, sources, row_bytes, count] {
    const kernels::Cells far = rows_of(*from, row_bytes);
    const kernels::EntryMerge merge{
        .near = far,
        .far = far,
        .source = static_cast<const int32_t*>(scratch_.upload(sources.data(), count * 4, queue_.stream())),
        .count = count,
        .to = rows_of(*to, row_bytes)};
    kernels::merge_entries_cuda({&merge, 1}, scratch_, queue_.stream());
    complete();
  });
}

}  // namespace kvarena::storage
