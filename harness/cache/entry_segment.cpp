#include "harness/cache/entry_segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "harness/core/error.h"
#include "kernels/cells/cells.h"
#include "kernels/rope/rope.h"

namespace kvarena {
namespace {

using kernels::CellKind;
using kernels::Cells;

/// Cells to write.
Cells cells(const LayerShape& shape, CellKind kind, Buffer& buffer) {
  return {.kind = kind, .dtype = shape.dtype, .head_dim = shape.head_dim, .data = buffer.data()};
}

/// Cells to read: kernels take the same struct.
Cells cells(const LayerShape& shape, CellKind kind, const Buffer& buffer) {
  return {
      .kind = kind, .dtype = shape.dtype, .head_dim = shape.head_dim, .data = const_cast<std::byte*>(buffer.data())};
}

/// Cells to hold for `entries`: whole cells and at most 1/64 more, so that growing stays linear in time.
int64_t grown_cells(int64_t entries) {
  const int64_t needed = kernels::cells_for(entries);
  return needed + needed / 64;
}

/// Bytes of an entry's key or value.
size_t row_bytes(const Cells& run) { return static_cast<size_t>(run.head_dim * kernels::size_of(run.dtype)); }

/// Copies the lanes of a cell of keys between two widths, in entries.
void copy_lanes(const std::byte* from, size_t from_width, std::byte* to, size_t to_width, const Cells& run) {
  const auto size = static_cast<size_t>(kernels::size_of(run.dtype));
  const size_t lanes = std::min(from_width, to_width) * size;
  for (int64_t channel = 0; channel < run.head_dim; ++channel) {
    std::memcpy(to, from, lanes);
    from += from_width * size;
    to += to_width * size;
  }
}

/// Entries of a run at rest: whole cells as they lie, the last as wide as it is full. Values are rows already.
void save_cells(const Cells& run, int64_t first, int64_t count, std::byte* to) {
  if (count == 0) return;
  const size_t row = row_bytes(run);
  const bool in_place = run.kind == CellKind::values || first % kernels::kCell == 0;
  std::vector<std::byte> moved(in_place ? 0 : static_cast<size_t>(kernels::cells_for(count) * kernels::kCell) * row);
  if (!in_place) {
    kernels::copy_entries(run, first, count,
                          {.kind = run.kind, .dtype = run.dtype, .head_dim = run.head_dim, .data = moved.data()}, 0);
  }
  const std::byte* from =
      in_place ? static_cast<const std::byte*>(run.data) + static_cast<size_t>(first) * row : moved.data();
  const auto rest = static_cast<size_t>(run.kind == CellKind::values ? 0 : count % kernels::kCell);
  const size_t whole = (static_cast<size_t>(count) - rest) * row;
  if (whole > 0) std::memcpy(to, from, whole);
  if (rest > 0) copy_lanes(from + whole, kernels::kCell, to + whole, rest, run);
}

/// Puts what save_cells() wrote at `position` of a run.
void load_cells(const std::byte* from, int64_t count, const Cells& run, int64_t position) {
  if (count == 0) return;
  const size_t row = row_bytes(run);
  const bool in_place = run.kind == CellKind::values || position % kernels::kCell == 0;
  std::vector<std::byte> moved(in_place ? 0 : static_cast<size_t>(kernels::cells_for(count) * kernels::kCell) * row);
  std::byte* to = in_place ? static_cast<std::byte*>(run.data) + static_cast<size_t>(position) * row : moved.data();
  const auto rest = static_cast<size_t>(run.kind == CellKind::values ? 0 : count % kernels::kCell);
  const size_t whole = (static_cast<size_t>(count) - rest) * row;
  if (whole > 0) std::memcpy(to, from, whole);
  if (rest > 0) copy_lanes(from + whole, rest, to + whole, kernels::kCell, run);
  if (in_place) return;
  kernels::copy_entries({.kind = run.kind, .dtype = run.dtype, .head_dim = run.head_dim, .data = moved.data()}, 0,
                        count, run, position);
}

}  // namespace

/// The content at mark(), as far as it is no longer here.
struct EntrySegment::Mark {
  Mark(const LayerShape& shape, const LedgerPtr& ledger) : lost(shape, ledger) {}

  /// A head at mark().
  struct Head {
    int64_t entries = 0;
    int32_t last = -1;                // position of the last entry
    LedgerVector<int32_t> positions;  // once one of them was lost
    LedgerVector<float> scores;       // [entries, score_width]
  };
  std::vector<Head> heads;
  int64_t first_position = 0;
  bool ragged = false;
  int64_t score_width = 0;
  EntrySegment lost;               // entries that left or changed since, in the order of that
  bool overwritten = false;        // whether some of them are still here
  std::unique_ptr<Segment> whole;  // all that was here, before it changed together

  [[nodiscard]] int64_t bytes() const {
    int64_t total = lost.bytes() + (whole ? whole->bytes() : 0);
    for (const Head& head : heads) {
      total +=
          static_cast<int64_t>(head.positions.capacity() * sizeof(int32_t) + head.scores.capacity() * sizeof(float));
    }
    return total;
  }
};

EntrySegment::~EntrySegment() = default;
EntrySegment::EntrySegment(EntrySegment&&) noexcept = default;
EntrySegment& EntrySegment::operator=(EntrySegment&&) noexcept = default;

EntrySegment::EntrySegment(const LayerShape& shape, LedgerPtr ledger) : Segment(shape), ledger_(std::move(ledger)) {
  for (int64_t head = 0; head < shape.kv_heads; ++head) heads_.emplace_back(ledger_);
}

void EntrySegment::change_version() {
  Segment::change_version();
  changes_.replaced();
}

int64_t EntrySegment::cell_bytes() const {
  return kernels::cell_bytes(kernels::kCell, shape().head_dim, shape().dtype);
}

void EntrySegment::reserve(Head& head, int64_t entries) {
  if (kernels::cells_for(entries) * cell_bytes() <= head.keys.bytes()) return;
  const int64_t bytes = grown_cells(entries) * cell_bytes();
  head.keys.resize(ledger_, bytes);
  head.values.resize(ledger_, bytes);
}

/// In place where the cells stay as many.
template <typename Move>
void EntrySegment::close_up(Head& head, int64_t entries, const Move& move) {
  const int64_t bytes = kernels::cells_for(entries) * cell_bytes();
  for (auto [kind, buffer] : {std::pair{CellKind::keys, &head.keys}, std::pair{CellKind::values, &head.values}}) {
    if (bytes == buffer->bytes()) {
      const Cells run = cells(shape(), kind, *buffer);
      move(run, run);
    } else {
      Buffer left(ledger_, Tier::device, bytes);
      move(cells(shape(), kind, std::as_const(*buffer)), cells(shape(), kind, left));
      *buffer = std::move(left);
    }
  }
  head.entries = entries;
}

void EntrySegment::shrink(Head& head) {
  const int64_t bytes = kernels::cells_for(head.entries) * cell_bytes();
  head.keys.resize(ledger_, bytes);
  head.values.resize(ledger_, bytes);
  head.positions.shrink_to_fit();
  head.scores.shrink_to_fit();
}

void EntrySegment::append(const float* keys, const float* values, int64_t n, int64_t stride, int64_t position) {
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    Head& head = heads_[h];
    if (!ragged_ && h == 0 && head.entries == 0) first_position_ = position;
    reserve(head, head.entries + n);
    const int64_t offset = h * shape().head_dim;
    kernels::store_rows(cells(shape(), CellKind::keys, head.keys), head.entries, n, keys + offset, stride);
    kernels::store_rows(cells(shape(), CellKind::values, head.values), head.entries, n, values + offset, stride);
    if (ragged_) {
      const auto old = static_cast<int64_t>(head.positions.size());
      head.positions.resize(old + n);
      std::iota(head.positions.begin() + old, head.positions.end(), static_cast<int32_t>(position));
    }
    head.entries += n;
    head.scores.resize(head.entries * score_width_, 0.0F);
  }
}

void EntrySegment::replace(int64_t first, const float* keys, const float* values, int64_t n, int64_t stride) {
  hold_all();
  change_version();
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    Head& head = heads_[h];
    KVARENA_ASSERT(first >= 0 && first + n <= head.entries, fmt::format("{} at {} of {}", n, first, head.entries));
    const int64_t offset = h * shape().head_dim;
    kernels::store_rows(cells(shape(), CellKind::keys, head.keys), first, n, keys + offset, stride);
    kernels::store_rows(cells(shape(), CellKind::values, head.values), first, n, values + offset, stride);
  }
}

void EntrySegment::rotate_keys(int64_t first, int64_t count, std::span<const float> cos, std::span<const float> sin) {
  hold_all();
  change_version();
  for (Head& head : heads_) {
    kernels::rotate_cells(cells(shape(), CellKind::keys, head.keys), first, count, cos.data(), sin.data(),
                          static_cast<int64_t>(cos.size()), /*table_stride=*/0);
  }
}

int32_t EntrySegment::position(int64_t kv_head, int64_t entry) const {
  return ragged_ ? heads_[kv_head].positions[entry] : static_cast<int32_t>(first_position_ + entry);
}

void EntrySegment::append_entries(const EntrySegment& from, int64_t first, int64_t count) {
  if (from.ragged_) become_ragged();
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    Head& head = heads_[h];
    if (!ragged_ && h == 0 && head.entries == 0) first_position_ = from.position(h, first);
    reserve(head, head.entries + count);
    kernels::copy_entries(cells(shape(), CellKind::keys, from.heads_[h].keys), first, count,
                          cells(shape(), CellKind::keys, head.keys), head.entries);
    kernels::copy_entries(cells(shape(), CellKind::values, from.heads_[h].values), first, count,
                          cells(shape(), CellKind::values, head.values), head.entries);
    for (int64_t i = first; i < first + count && ragged_; ++i) head.positions.push_back(from.position(h, i));
    head.entries += count;
    head.scores.resize(head.entries * score_width_, 0.0F);
  }
}

void EntrySegment::append_to_head(int64_t kv_head, std::span<const int32_t> positions, const float* keys,
                                  const float* values, int64_t stride) {
  hold_all();
  become_ragged();
  change_version();
  Head& head = heads_[kv_head];
  const auto n = static_cast<int64_t>(positions.size());
  reserve(head, head.entries + n);
  kernels::store_rows(cells(shape(), CellKind::keys, head.keys), head.entries, n, keys, stride);
  kernels::store_rows(cells(shape(), CellKind::values, head.values), head.entries, n, values, stride);
  head.positions.insert(head.positions.end(), positions.begin(), positions.end());
  head.entries += n;
  head.scores.resize(head.entries * score_width_, 0.0F);
}

int64_t EntrySegment::saved_bytes(int64_t count) const {
  return 2 * count * shape().head_dim * kernels::size_of(shape().dtype);
}

void EntrySegment::save(int64_t kv_head, int64_t first, int64_t count, std::span<std::byte> to) const {
  const Head& head = heads_[kv_head];
  KVARENA_ASSERT(first >= 0 && first + count <= head.entries && std::ssize(to) == saved_bytes(count),
                 fmt::format("{} at {} of {} into {} bytes", count, first, head.entries, to.size()));
  save_cells(cells(shape(), CellKind::keys, head.keys), first, count, to.data());
  save_cells(cells(shape(), CellKind::values, head.values), first, count, to.data() + to.size() / 2);
}

void EntrySegment::append_saved(std::span<const SavedHead> heads, std::optional<int64_t> position) {
  KVARENA_ASSERT(std::ssize(heads) == shape().kv_heads, fmt::format("{} heads", heads.size()));
  if (!position) {
    hold_all();
    become_ragged();
    change_version();
  } else if (!ragged_ && heads_.front().entries == 0) {
    first_position_ = *position;
  }
  for (size_t h = 0; h < heads.size(); ++h) {
    const SavedHead& saved = heads[h];
    Head& head = heads_[h];
    reserve(head, head.entries + saved.count);
    const size_t side = saved.bytes.size() / 2;
    load_cells(saved.bytes.data(), saved.count, cells(shape(), CellKind::keys, head.keys), head.entries);
    load_cells(saved.bytes.data() + side, saved.count, cells(shape(), CellKind::values, head.values), head.entries);
    if (!position) {
      head.positions.insert(head.positions.end(), saved.positions.begin(), saved.positions.end());
    } else if (ragged_) {
      for (int64_t i = 0; i < saved.count; ++i) head.positions.push_back(static_cast<int32_t>(*position + i));
    }
    head.entries += saved.count;
    head.scores.resize(head.entries * score_width_, 0.0F);
  }
}

void EntrySegment::truncate(int64_t n) {
  for (int64_t h = 0; mark_ && h < shape().kv_heads; ++h) {
    // Others may take the positions of marked entries that leave here.
    if (n < heads_[h].entries && position(h, n) <= mark_->heads[h].last) hold_all();
  }
  if (ragged_) change_version();  // heads lose differently many
  changes_.truncated(n);
  for (Head& head : heads_) {
    if (head.entries <= n) continue;
    head.entries = n;
    if (ragged_) head.positions.resize(n);
    head.scores.resize(n * score_width_);
    // A roll-back is followed by appends: what they would allocate again stays.
    if (head.keys.bytes() > grown_cells(n) * cell_bytes()) shrink(head);
  }
}

void EntrySegment::become_ragged() {
  if (ragged_) return;
  for (Head& head : heads_) {
    head.positions.reserve(head.entries);
    head.positions.resize(head.entries);
    std::iota(head.positions.begin(), head.positions.end(), static_cast<int32_t>(first_position_));
  }
  ragged_ = true;
}

void EntrySegment::keep(std::span<const std::vector<int32_t>> kept) {
  KVARENA_ASSERT(static_cast<int64_t>(kept.size()) == shape().kv_heads,
                 fmt::format("lists for {} heads, the layer has {}", kept.size(), shape().kv_heads));
  for (int64_t h = 0; mark_ && h < shape().kv_heads; ++h) {
    auto next = kept[h].begin();
    for (int64_t i = 0; i < heads_[h].entries; ++i) {
      next != kept[h].end() && *next == i ? static_cast<void>(++next) : hold(h, i);
    }
  }
  become_ragged();
  changes_.dropped();
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    Head& head = heads_[h];
    const auto count = static_cast<int64_t>(kept[h].size());
    close_up(head, count,
             [&](const Cells& from, const Cells& to) { kernels::gather_entries(from, kept[h].data(), count, to, 0); });
    for (int64_t i = 0; i < count; ++i) head.positions[i] = head.positions[kept[h][i]];
    head.positions.resize(count);
    const int64_t width = score_width_;
    for (int64_t i = 0; i < count && width > 0; ++i) {
      std::copy_n(head.scores.begin() + kept[h][i] * width, width, head.scores.begin() + i * width);
    }
    head.scores.resize(count * width);
    head.positions.shrink_to_fit();
    head.scores.shrink_to_fit();
  }
}

void EntrySegment::overwrite(int64_t kv_head, int64_t entry, const float* key, const float* value) {
  Head& head = heads_[kv_head];
  KVARENA_ASSERT(entry >= 0 && entry < head.entries, fmt::format("entry {} of {}", entry, head.entries));
  hold(kv_head, entry);
  if (mark_) mark_->overwritten = true;
  if (!changes_.rewrote(kv_head, position(kv_head, entry), head.entries)) change_version();
  const auto store = [&](CellKind kind, Buffer& buffer, const float* row) {
    if (row != nullptr) kernels::store_rows(cells(shape(), kind, buffer), entry, 1, row, shape().head_dim);
  };
  store(CellKind::keys, head.keys, key);
  store(CellKind::values, head.values, value);
}

void EntrySegment::replace(int64_t kv_head, int64_t entry, const EntrySegment& from, int64_t from_entry) {
  hold_all();
  become_ragged();
  change_version();
  Head& head = heads_[kv_head];
  KVARENA_ASSERT(entry >= 0 && entry <= head.entries && score_width_ == 0,
                 fmt::format("entry {} of {}, {} numbers remembered", entry, head.entries, score_width_));
  if (entry == head.entries) {
    reserve(head, ++head.entries);
    head.positions.push_back(0);
  }
  const Head& source = from.heads_[kv_head];
  kernels::copy_entries(cells(shape(), CellKind::keys, source.keys), from_entry, 1,
                        cells(shape(), CellKind::keys, head.keys), entry);
  kernels::copy_entries(cells(shape(), CellKind::values, source.values), from_entry, 1,
                        cells(shape(), CellKind::values, head.values), entry);
  head.positions[entry] = from.position(kv_head, from_entry);
}

void EntrySegment::drop_front(int64_t n) {
  for (int64_t h = 0; mark_ && h < shape().kv_heads; ++h) {
    for (int64_t i = 0; i < n; ++i) hold(h, i);
  }
  change_version();
  for (Head& head : heads_) {
    const int64_t left = head.entries - n;
    close_up(head, left, [&](const Cells& from, const Cells& to) { kernels::copy_entries(from, n, left, to, 0); });
    if (ragged_) head.positions.erase(head.positions.begin(), head.positions.begin() + n);
    head.scores.erase(head.scores.begin(), head.scores.begin() + n * score_width_);
    head.positions.shrink_to_fit();
    head.scores.shrink_to_fit();
  }
  first_position_ += n;
}

void EntrySegment::reserve_scores(int64_t width) {
  if (width == score_width_) return;
  for (Head& head : heads_) head.scores.assign(head.entries * width, 0.0F);
  score_width_ = width;
}

kernels::HeadRun EntrySegment::run(int64_t kv_head) const {
  const Head& head = heads_[kv_head];
  return {.keys = head.keys.data(), .values = head.values.data(), .entries = head.entries};
}

std::vector<int32_t> EntrySegment::positions(int64_t kv_head) const {
  const Head& head = heads_[kv_head];
  if (ragged_) return {head.positions.begin(), head.positions.end()};
  std::vector<int32_t> list(static_cast<size_t>(head.entries));
  std::iota(list.begin(), list.end(), static_cast<int32_t>(first_position_));
  return list;
}

int64_t EntrySegment::bytes() const {
  int64_t total = mark_ ? mark_->bytes() : 0;
  for (const Head& head : heads_) {
    total += head.keys.bytes() + head.values.bytes();
    total += static_cast<int64_t>(head.positions.capacity() * sizeof(int32_t) + head.scores.capacity() * sizeof(float));
  }
  return total;
}

void EntrySegment::plan(const LayerQueries& /*queries*/, AttentionPlan& to) const {
  AttentionItem& item = to.add(*this);
  item.dtype = shape().dtype;
  item.ragged = ragged_;
  item.runs.reserve(heads_.size());
  for (int64_t h = 0; h < shape().kv_heads; ++h) item.runs.push_back(run(h));
  item.sees = in_window_of(shape());
}

void EntrySegment::plan_newest(const LayerQueries& queries, AttentionPlan& to, int64_t window) const {
  plan(queries, to);
  if (ragged_ && window > 0) return;  // the newest without a gap are those of the last positions
  to.items.back().sees = {.rule = Visibility::Rule::newest,
                          .window = window,
                          .chunked = window > 0 && shape().chunked,
                          .first_position = first_position_};
}

AttentionPlan EntrySegment::plan_newest(const LayerQueries& queries) const {
  AttentionPlan plan{.queries = queries, .items = {}};
  plan_newest(queries, plan, shape().window);
  return plan;
}

void EntrySegment::read_some(int64_t kv_head, int64_t first, int64_t count, float* keys, float* values,
                             int64_t stride) const {
  const Head& head = heads_[kv_head];
  if (keys != nullptr) kernels::load_rows(cells(shape(), CellKind::keys, head.keys), first, count, keys, stride);
  if (values != nullptr)
    kernels::load_rows(cells(shape(), CellKind::values, head.values), first, count, values, stride);
}

void EntrySegment::own() {
  for (Head& head : heads_) {
    (void)head.keys.data();
    (void)head.values.data();
  }
}

std::unique_ptr<Segment> EntrySegment::clone(const LedgerPtr& ledger) const {
  auto copy = std::make_unique<EntrySegment>(shape(), ledger);
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    const Head& from = heads_[h];
    Head& to = copy->heads_[h];
    to.keys = from.keys.clone(ledger);
    to.values = from.values.clone(ledger);
    to.entries = from.entries;
    to.positions.assign(from.positions.begin(), from.positions.end());
    to.scores.assign(from.scores.begin(), from.scores.end());
  }
  copy->first_position_ = first_position_;
  copy->ragged_ = ragged_;
  copy->score_width_ = score_width_;
  return copy;
}

std::unique_ptr<EntrySegment> EntrySegment::front(int64_t count, const LedgerPtr& ledger) const {
  KVARENA_ASSERT(!ragged_ && score_width_ == 0 && count <= entries(0), "not a dense front");
  std::unique_ptr<EntrySegment> copy(static_cast<EntrySegment*>(clone(ledger).release()));
  for (Head& head : copy->heads_) head.entries = count;
  return copy;
}

void EntrySegment::mark(const LedgerPtr& held) {
  mark_ = std::make_unique<Mark>(shape(), held);
  mark_->first_position = first_position_;
  mark_->ragged = ragged_;
  mark_->score_width = score_width_;
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    const Head& head = heads_[h];
    mark_->heads.push_back({.entries = head.entries,
                            .last = head.entries > 0 ? position(h, head.entries - 1) : -1,
                            .positions = LedgerVector<int32_t>(LedgerAllocator<int32_t>(held)),
                            .scores = {head.scores.begin(), head.scores.end(), LedgerAllocator<float>(held)}});
  }
}

void EntrySegment::unmark() { mark_.reset(); }

void EntrySegment::hold_all() {
  if (mark_ && !mark_->whole) mark_->whole = clone(mark_->lost.ledger_);
}

void EntrySegment::hold(int64_t kv_head, int64_t entry) {
  if (!mark_ || mark_->whole) return;
  Mark::Head& then = mark_->heads[kv_head];
  const int32_t own = position(kv_head, entry);
  if (own > then.last) return;  // it joined later
  if (mark_->overwritten &&
      std::ranges::find(mark_->lost.heads_[kv_head].positions, own) != mark_->lost.heads_[kv_head].positions.end()) {
    return;
  }
  if (then.positions.empty()) {
    for (int64_t i = 0; i < then.entries; ++i) then.positions.push_back(position(kv_head, i));
  }
  mark_->lost.replace(kv_head, mark_->lost.entries(kv_head), *this, entry);
}

EntrySegment::Head EntrySegment::restored(int64_t kv_head, const Mark& mark) {
  const Mark::Head& then = mark.heads[kv_head];
  const Head& lost = mark.lost.heads_[kv_head];
  std::vector<std::pair<int32_t, int64_t>> held;  // position, place in lost
  for (int64_t i = 0; i < lost.entries; ++i) held.emplace_back(lost.positions[i], i);
  std::ranges::sort(held);
  Head head(ledger_);
  reserve(head, then.entries);
  auto next = held.begin();
  int64_t here = 0;  // entry of the present head
  while (head.entries < then.entries) {
    // A run that lies together in one of the two.
    const int32_t first = then.positions[head.entries];
    const bool was_lost = next != held.end() && next->first == first;
    while (!was_lost && position(kv_head, here) != first) ++here;
    const int64_t from = was_lost ? next->second : here;
    int64_t count = 0;
    for (int64_t at = head.entries; at < then.entries; ++at, ++count) {
      const bool lost_too = next != held.end() && next->first == then.positions[at];
      if (lost_too != was_lost) break;
      if (was_lost ? next->second != from + count : position(kv_head, from + count) != then.positions[at]) break;
      if (was_lost) ++next;
    }
    if (!was_lost) here += count;
    const Head& source = was_lost ? lost : heads_[kv_head];
    kernels::copy_entries(cells(shape(), CellKind::keys, source.keys), from, count,
                          cells(shape(), CellKind::keys, head.keys), head.entries);
    kernels::copy_entries(cells(shape(), CellKind::values, source.values), from, count,
                          cells(shape(), CellKind::values, head.values), head.entries);
    head.entries += count;
  }
  if (mark.ragged) head.positions.assign(then.positions.begin(), then.positions.end());
  return head;
}

void EntrySegment::rewind() {
  const std::unique_ptr<Mark> mark = std::move(mark_);
  KVARENA_ASSERT(mark != nullptr, "a segment goes back to where it was marked");
  bool anew = ragged_ || mark->whole;
  if (mark->whole) {
    const std::unique_ptr<Segment> whole = mark->whole->clone(ledger_);
    auto& then = static_cast<EntrySegment&>(*whole);
    heads_ = std::move(then.heads_);
    ragged_ = then.ragged_;
    first_position_ = then.first_position_;
  }
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    Mark::Head& then = mark->heads[h];
    if (!then.positions.empty()) {
      anew = true;
      Head head = restored(h, *mark);
      heads_[h] = std::move(head);
    }
    Head& head = heads_[h];
    head.entries = then.entries;
    head.positions.resize(mark->ragged ? then.entries : 0);
    head.scores = std::move(then.scores);
    if (head.keys.bytes() > grown_cells(head.entries) * cell_bytes()) shrink(head);
  }
  ragged_ = mark->ragged;
  first_position_ = mark->first_position;
  score_width_ = mark->score_width;
  anew ? change_version() : changes_.truncated(heads_.front().entries);
}

}  // namespace kvarena
