#include "harness/device/device_slots.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "harness/cache/consecutive_runs.h"

namespace kvarena::device {
namespace {

using kernels::CellKind;
using kernels::Cells;

int64_t whole_cells(int64_t entries) { return kernels::cells_for(entries) * kernels::kCell; }

/// Slots that an extra's longest head takes.
int64_t slots_of(const ExtraRuns& extra) {
  int64_t longest = 0;
  for (const kernels::HeadRun& run : extra.runs) longest = std::max(longest, run.entries + extra.fresh);
  return whole_cells(longest);
}

/// Appends the listed entries of cells entry by entry.
void append_rows(const Cells& from, const std::vector<int32_t>& list, std::vector<std::byte>& to) {
  const int64_t d = from.head_dim, at = std::ssize(to);
  std::vector<float> rows(list.size() * static_cast<size_t>(d));
  each_consecutive_run(list, [&](int64_t i, int64_t count) {
    kernels::load_rows(from, list[static_cast<size_t>(i)], count, rows.data() + i * d, d);
  });
  to.resize(to.size() + rows.size() * static_cast<size_t>(kernels::size_of(from.dtype)));
  const Cells there{.kind = CellKind::values, .dtype = from.dtype, .head_dim = d, .data = to.data() + at};
  kernels::store_rows(there, 0, std::ssize(list), rows.data(), d);
}

}  // namespace

void SlotMemory::make_room(const LayerShape& shape, int64_t entries) {
  constexpr int64_t kBlock = 64;  // so that a choice that grows by some entries stays where it is
  if (entries <= room) return;
  room = (entries + kBlock - 1) / kBlock * kBlock;
  memory.reserve(2 * shape.kv_heads * kernels::cell_bytes(room, shape.head_dim, shape.dtype));
}

Cells SlotMemory::cells(const LayerShape& shape, int64_t head, CellKind kind) const {
  const int64_t run = 2 * head + (kind == CellKind::keys ? 0 : 1);
  return {.kind = kind,
          .dtype = shape.dtype,
          .head_dim = shape.head_dim,
          .data = static_cast<char*>(memory.data()) + run * kernels::cell_bytes(room, shape.head_dim, shape.dtype)};
}

int64_t SlotUpdates::send(kernels::CudaScratch& with, kernels::CudaStream stream) {
  if (pieces_.empty()) return 0;
  const int64_t entry_bytes = std::ssize(rows_);
  const auto* const lists = reinterpret_cast<const std::byte*>(sources_.data());
  rows_.insert(rows_.end(), lists, lists + std::ssize(sources_) * int64_t{sizeof(int32_t)});
  auto* const rows = static_cast<char*>(with.upload(rows_.data(), std::ssize(rows_), stream));
  const auto* const sources = reinterpret_cast<const int32_t*>(rows + entry_bytes);
  std::vector<kernels::EntryMerge> merges;
  for (const Piece& piece : pieces_) {
    kernels::EntryMerge& merge = merges.emplace_back(piece.merge);
    merge.far.data = rows + piece.rows;
    if (merge.near.data == nullptr) merge.near = merge.far;  // nothing is there
    merge.source = sources + piece.sources;
  }
  kernels::merge_entries_cuda(merges, with, stream);
  return entry_bytes;
}

/// Entries of one head, from slot `first` on.
void DeviceSlots::place(ExtraRuns& extra, const LayerShape& shape, int64_t head, int64_t first, const SlotMemory& to,
                        SlotUpdates& updates) const {
  kernels::HeadRun& run = extra.runs[static_cast<size_t>(head)];
  std::vector<int32_t> missing;
  const int64_t sources = std::ssize(updates.sources_);
  for (int64_t i = 0; i < run.entries; ++i) {
    const std::pair wanted{extra.source, extra.positions[static_cast<size_t>(head)][static_cast<size_t>(i)]};
    const auto key = [](const Held& one) { return std::pair{one.source, one.position}; };
    const Held* found = nullptr;
    if (!held_.empty()) {
      const std::vector<Held>& all = held_[static_cast<size_t>(head)];
      const auto at = std::ranges::lower_bound(all, wanted, {}, key);
      if (at != all.end() && key(*at) == wanted) found = &*at;
    }
    updates.sources_.push_back(found != nullptr ? found->slot : ~static_cast<int32_t>(std::ssize(missing)));
    if (found == nullptr) missing.push_back(static_cast<int32_t>(i));
  }
  const int64_t before = kernels::cell_bytes(first, shape.head_dim, shape.dtype), count = run.entries;
  for (const CellKind kind : {CellKind::keys, CellKind::values}) {
    const void*& data = kind == CellKind::keys ? run.keys : run.values;
    const Cells from{
        .kind = kind, .dtype = shape.dtype, .head_dim = shape.head_dim, .data = const_cast<void*>(data)};  // read alone
    Cells there = to.cells(shape, head, kind), far = there;
    there.data = static_cast<char*>(there.data) + before;
    far.kind = CellKind::values;
    data = there.data;
    if (count == 0) continue;
    updates.pieces_.push_back(
        {.merge = {.near = now_.cells(shape, head, kind), .far = far, .count = count, .to = there},
         .rows = std::ssize(updates.rows_),
         .sources = sources});
    append_rows(from, missing, updates.rows_);
  }
  run.entries += extra.fresh;
}

void DeviceSlots::take(std::span<ExtraRuns> extras, const LayerShape& shape, int64_t length, SlotMemory& spare,
                       SlotUpdates& updates) {
  int64_t slots = 0;
  for (const ExtraRuns& extra : extras) slots += slots_of(extra);
  spare.make_room(shape, slots);
  std::vector<std::vector<Held>> held(static_cast<size_t>(shape.kv_heads));
  int64_t first = 0;
  for (ExtraRuns& extra : extras) {
    const int64_t next = first + slots_of(extra);
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<Held>& own = held[static_cast<size_t>(head)];
      auto slot = static_cast<int32_t>(first);
      for (const int32_t position : extra.positions[static_cast<size_t>(head)])
        own.push_back({extra.source, position, slot++});
      for (int64_t i = 0; i < extra.fresh; ++i) own.push_back({extra.source, static_cast<int32_t>(length + i), slot++});
      place(extra, shape, head, first, spare, updates);
    }
    first = next;
  }
  for (std::vector<Held>& own : held) {
    std::ranges::sort(own, {}, [](const Held& one) { return std::tuple{one.source, one.position, one.slot}; });
  }
  held_ = std::move(held);
  std::swap(now_, spare);
}

}  // namespace kvarena::device
