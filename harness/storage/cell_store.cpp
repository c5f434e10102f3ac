#include "harness/storage/cell_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "kernels/cells/cells.h"

namespace kvarena::storage {
namespace {

/// Cells by which a run grows at least, where it has grown before.
constexpr int64_t kGrowth = 4;

/// The memory of a run that this file has just made, keys or values.
std::byte* memory_of(const void* cells) { return static_cast<std::byte*>(const_cast<void*>(cells)); }

/// Makes an empty segment one of `entries` zeros.
void make_room(EntrySegment& segment, int64_t entries, int64_t position) {
  const std::vector<float> zeros(static_cast<size_t>(segment.shape().kv_heads * segment.shape().head_dim));
  segment.append(zeros.data(), zeros.data(), entries, /*stride=*/0, position);
}

}  // namespace

CellStore::CellStore(const LayerShape& shape, LedgerPtr ledger, HierarchyPtr tiers, Tier tier)
    : shape_(shape), ledger_(std::move(ledger)), tiers_(std::move(tiers)), tier_(tier) {
  (void)tiers_->storage(tier_);
}

int64_t CellStore::cell_bytes() const { return kernels::cell_bytes(kernels::kCell, shape_.head_dim, shape_.dtype); }

int64_t CellStore::bytes() const { return runs() * kernels::cells_for(entries_) * cell_bytes(); }

int64_t CellStore::device_bytes() const {
  const int64_t cells = kernels::cells_for(entries_);
  return runs() * (cells + cells / 64) * cell_bytes();
}

void CellStore::grow(int64_t cells, int64_t kept) {
  const int64_t old_room = room_;
  const std::shared_ptr<Block> old = block_;
  const int64_t room = old ? std::max(cells, room_ + std::max(kGrowth, room_ / 8)) : cells;
  block_ = tiers_->storage(tier_).allocate(ledger_, runs() * room * cell_bytes());
  room_ = room;
  std::vector<std::byte> moved(static_cast<size_t>(kept * cell_bytes()));
  for (int64_t run = 0; run < runs() && kept > 0; ++run) {
    old->read(run * old_room * cell_bytes(), moved);
    block_->write(run * room_ * cell_bytes(), moved);
  }
}

Transfer CellStore::write(const EntrySegment& from, int64_t first) {
  const int64_t entries = from.entries(0);
  KVARENA_ASSERT(!from.ragged() && from.score_width() == 0, "only dense entries lie in cells alone");
  KVARENA_ASSERT(first >= 0 && first <= std::min(entries, entries_), fmt::format("{} of {}", first, entries));
  if (first == entries) return {};
  const int64_t kept = first / kernels::kCell, cells = kernels::cells_for(entries);
  if (cells > room_) grow(cells, kept);
  position_ = from.position(0, 0);
  entries_ = entries;
  std::vector<WritePiece> pieces;
  for (int64_t run = 0; run < runs(); ++run) {
    const kernels::HeadRun head = from.run(run / 2);
    const auto* const memory = static_cast<const std::byte*>(run % 2 == 0 ? head.keys : head.values);
    pieces.push_back({.at = (run * room_ + kept) * cell_bytes(),
                      .memory = memory + kept * cell_bytes(),
                      .bytes = (cells - kept) * cell_bytes()});
  }
  return tiers_->offload(tier_).write(block_, std::move(pieces));
}

Transfer CellStore::load(EntrySegment& to, Further further) const {
  KVARENA_ASSERT(to.entries(0) == 0, fmt::format("{} entries where others are loaded", to.entries(0)));
  const int64_t stride = room_ * cell_bytes();
  const auto length = static_cast<size_t>(kernels::cells_for(entries_) * cell_bytes());
  return tiers_->load(tier_).carry(
      bytes(), runs(),
      [block = block_, &to, stride, length, entries = entries_, position = position_, further = std::move(further)] {
        make_room(to, entries, position);
        std::vector<kernels::HeadRun> here, there;  // in the tier
        std::span<const std::byte> memory = block->memory();
        for (int64_t head = 0; head < to.shape().kv_heads; ++head) {
          here.push_back(to.run(head));
          if (memory.empty()) continue;
          const std::byte* const first = memory.data() + 2 * head * stride;
          there.push_back({.keys = first, .values = first + stride, .entries = entries});
        }
        std::function<void()> arrive;
        if (further && !there.empty()) arrive = further(there);
        for (int64_t run = 0; run < 2 * to.shape().kv_heads; ++run) {
          const kernels::HeadRun& head = here[static_cast<size_t>(run / 2)];
          block->read(run * stride, {memory_of(run % 2 == 0 ? head.keys : head.values), length});
        }
        if (further && there.empty()) arrive = further(here);
        if (arrive) arrive();
      });
}

}  // namespace kvarena::storage
