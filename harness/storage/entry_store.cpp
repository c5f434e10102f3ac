#include "harness/storage/entry_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cache/consecutive_runs.h"
#include "kernels/cells/cells.h"

namespace kvarena::storage {
namespace {

using kernels::CellKind;
using kernels::Cells;

/// Entries by which a store grows at least.
constexpr int64_t kGrowth = 64;

/// Rows as cells of values: entry after entry, channel after channel.
Cells rows_as_cells(const std::byte* rows, int64_t width, DType dtype) {
  return {.kind = CellKind::values, .dtype = dtype, .head_dim = width, .data = const_cast<std::byte*>(rows)};
}

}  // namespace

EntryStore::EntryStore(const LayerShape& shape, LedgerPtr ledger, HierarchyPtr tiers, Tier tier, int64_t first,
                       RowContent content)
    : shape_(shape),
      ledger_(std::move(ledger)),
      tiers_(std::move(tiers)),
      tier_(tier),
      first_(first),
      content_(content) {
  (void)tiers_->storage(tier_);
}

int64_t EntryStore::row_width() const { return (content_ == RowContent::value ? 1 : 2) * shape_.head_dim; }

int64_t EntryStore::row_bytes() const { return row_width() * kernels::size_of(shape_.dtype); }

int64_t EntryStore::row_offset(int64_t kv_head, int64_t row) const { return (kv_head * room_ + row) * row_bytes(); }

/// A new block with room for at least `entries`, the rows held so far moved within the tier.
void EntryStore::grow(int64_t entries) {
  settle();
  const int64_t old_room = room_;
  const std::shared_ptr<Block> old = block_;
  const int64_t room = entries_ == 0 ? entries : std::max(entries, room_ + std::max(kGrowth, room_ / 8));
  block_ = tiers_->storage(tier_).allocate(ledger_, shape_.kv_heads * room * row_bytes());
  room_ = room;
  if (entries_ == 0) return;
  std::vector<std::byte> head(static_cast<size_t>(entries_ * row_bytes()));
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    old->read(h * old_room * row_bytes(), head);
    block_->write(row_offset(h, 0), head);
  }
}

void EntryStore::settle() {
  offload_.wait();
  offload_ = {};
  leaving_ = {};
  arrived_ = entries_;
}

void EntryStore::append(const EntrySegment& from, int64_t first, int64_t count) {
  if (count == 0) return;
  KVARENA_ASSERT(from.position(0, first) == first_ + entries_,
                 fmt::format("position {} follows {}", from.position(0, first), first_ + entries_ - 1));
  if (entries_ + count > room_) grow(entries_ + count);
  settle();

  const int64_t d = shape_.head_dim, width = row_width();
  const int64_t head_bytes = count * row_bytes();
  leaving_ = Buffer(ledger_, Tier::device, shape_.kv_heads * head_bytes);
  std::vector<float> rows(static_cast<size_t>(count * width));
  std::vector<WritePiece> pieces;
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    const kernels::HeadRun run = from.run(h);
    const auto cells = [&](CellKind kind, const void* data) {
      return Cells{.kind = kind, .dtype = shape_.dtype, .head_dim = d, .data = const_cast<void*>(data)};
    };
    if (content_ == RowContent::key_and_value)
      kernels::load_rows(cells(CellKind::keys, run.keys), first, count, rows.data(), width);
    kernels::load_rows(cells(CellKind::values, run.values), first, count, rows.data() + width - d, width);
    std::byte* leaving = leaving_.data() + h * head_bytes;
    kernels::store_rows(rows_as_cells(leaving, width, shape_.dtype), 0, count, rows.data(), width);
    pieces.push_back({.at = row_offset(h, entries_), .memory = leaving, .bytes = head_bytes});
  }
  offload_ = tiers_->offload(tier_).write(block_, std::move(pieces));
  offloaded_bytes_ += offload_.bytes();
  entries_ += count;
}

Transfer EntryStore::load(const std::vector<std::vector<int32_t>>& positions, std::byte* rows) {
  const auto under_way = [&](const std::vector<int32_t>& list) {
    return !list.empty() && list.back() - first_ >= arrived_;
  };
  if (std::ranges::any_of(positions, under_way)) settle();
  std::vector<ReadPiece> pieces;
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    each_consecutive_run(positions[h], [&](int64_t i, int64_t count) {
      const int64_t row = positions[h][static_cast<size_t>(i)] - first_;
      KVARENA_ASSERT(row >= 0 && row + count <= entries_,
                     fmt::format("{} rows from {} of {} from {}", count, row + first_, entries_, first_));
      pieces.push_back({.at = row_offset(h, row), .memory = rows, .bytes = count * row_bytes()});
      rows += count * row_bytes();
    });
  }
  return tiers_->load(tier_).read(block_, std::move(pieces));
}

std::unique_ptr<EntryStore> EntryStore::clone(const LedgerPtr& ledger) {
  settle();
  auto copy = std::make_unique<EntryStore>(shape_, ledger, tiers_, tier_, first_, content_);
  copy->offloaded_bytes_ = offloaded_bytes_;
  if (entries_ == 0) return copy;
  copy->grow(entries_);
  std::vector<std::byte> head(static_cast<size_t>(entries_ * row_bytes()));
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    block_->read(row_offset(h, 0), head);
    copy->block_->write(copy->row_offset(h, 0), head);
  }
  copy->entries_ = copy->arrived_ = entries_;
  return copy;
}

std::vector<float> numbers_of(const std::byte* rows, int64_t count, int64_t width, DType dtype) {
  std::vector<float> numbers(static_cast<size_t>(count * width));
  kernels::load_rows(rows_as_cells(rows, width, dtype), 0, count, numbers.data(), width);
  return numbers;
}

void append_rows(const LayerShape& shape, const std::byte* rows, std::span<const int32_t> positions, int64_t kv_head,
                 EntrySegment& to) {
  const int64_t d = shape.head_dim;
  const std::vector<float> numbers = numbers_of(rows, std::ssize(positions), 2 * d, shape.dtype);
  to.append_to_head(kv_head, positions, numbers.data(), numbers.data() + d, 2 * d);
}

}  // namespace kvarena::storage
