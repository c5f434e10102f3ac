#include "harness/storage/low_rank_segment.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/cache/consecutive_runs.h"
#include "harness/cache/rotation_tables.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rope/rope.h"

namespace kvarena::storage {
namespace {

using kernels::CellKind;
using kernels::Cells;

LedgerVector<std::byte> stored(const std::vector<float>& numbers, DType dtype, const LedgerPtr& ledger) {
  LedgerVector<std::byte> bytes{LedgerAllocator<std::byte>(ledger)};
  bytes.resize(numbers.size() * static_cast<size_t>(kernels::size_of(dtype)));
  for (size_t i = 0; i < numbers.size(); ++i) {
    kernels::store_element(bytes.data(), dtype, static_cast<int64_t>(i), numbers[i]);
  }
  return bytes;
}

/// Stored numbers first .. first+count-1.
void load_numbers(const LedgerVector<std::byte>& stored, DType dtype, int64_t first, int64_t count, float* to) {
  kernels::widen(stored.data() + first * kernels::size_of(dtype), dtype, count, to);
}

/// The listed entries of a run of cells, [list, head_dim].
std::vector<float> listed_rows(const Cells& cells, const std::vector<int32_t>& list) {
  std::vector<float> rows(list.size() * static_cast<size_t>(cells.head_dim));
  each_consecutive_run(list, [&](int64_t i, int64_t count) {
    kernels::load_rows(cells, list[static_cast<size_t>(i)], count, &rows[static_cast<size_t>(i * cells.head_dim)],
                       cells.head_dim);
  });
  return rows;
}

}  // namespace

void KeyRotation::turn(float* keys, int64_t head_dim, const std::vector<int32_t>& positions) const {
  if (positions.empty()) return;
  const auto pairs = static_cast<int64_t>(inverse.size());
  const RotationTables& tables = rotation_tables_up_to(inverse, *std::ranges::max_element(positions));
  each_consecutive_run(positions, [&](int64_t i, int64_t count) {
    const int64_t row = positions[static_cast<size_t>(i)] * pairs;
    kernels::rotate({.x = keys + i * head_dim,
                     .tokens = count,
                     .heads = 1,
                     .head_dim = head_dim,
                     .token_stride = head_dim,
                     .head_stride = head_dim,
                     .rotary = 2 * pairs,
                     .cos = &tables.cos[static_cast<size_t>(row)],
                     .sin = &tables.sin[static_cast<size_t>(row)]});
    for (int64_t token = i; token < i + count && magnitude != 1; ++token) {
      for (int64_t c = 0; c < 2 * pairs; ++c) keys[token * head_dim + c] *= static_cast<float>(magnitude);
    }
  });
}

void KeyRotation::undo(float* key, int64_t position) const {
  const size_t pairs = inverse.size();
  for (size_t c = 0; c < pairs; ++c) {
    const double angle = -static_cast<double>(position) * inverse[c];
    const double cosine = std::cos(angle) / magnitude, sine = std::sin(angle) / magnitude;
    const double a = key[c], b = key[c + pairs];
    key[c] = static_cast<float>(a * cosine - b * sine);
    key[c + pairs] = static_cast<float>(b * cosine + a * sine);
  }
}

LowRankSegment::LowRankSegment(const EntrySegment& from, const Parts& parts, LedgerPtr ledger, HierarchyPtr tiers,
                               Tier tier)
    : Segment(from.shape()),
      ledger_(std::move(ledger)),
      n_(parts.n),
      rank_(parts.rank),
      left_(stored(parts.left, shape().dtype, ledger_)),
      right_(stored(parts.right, shape().dtype, ledger_)),
      values_(shape(), ledger_, std::move(tiers), tier, /*first=*/0, RowContent::value),
      exact_(std::make_unique<GatheredSegment>(shape(), static_cast<int64_t>(parts.exact.front().size()), ledger_)),
      rotation_(parts.rotation) {
  values_.append(from, 0, n_);
  for (int64_t head = 0; head < shape().kv_heads; ++head) {
    const kernels::HeadRun run = from.run(head);
    const auto rows = [&](CellKind kind, const void* data) {
      const Cells cells{
          .kind = kind, .dtype = shape().dtype, .head_dim = shape().head_dim, .data = const_cast<void*>(data)};
      return listed_rows(cells, parts.exact[head]);
    };
    exact_->add(head, parts.exact[head], rows(CellKind::keys, run.keys).data(),
                rows(CellKind::values, run.values).data());
  }
  values_.settle();
}

LowRankSegment::LowRankSegment(const LowRankSegment& from, const LedgerPtr& ledger)
    : Segment(from.shape()),
      ledger_(ledger),
      n_(from.n_),
      rank_(from.rank_),
      left_(from.left_.begin(), from.left_.end(), LedgerAllocator<std::byte>(ledger)),
      right_(from.right_.begin(), from.right_.end(), LedgerAllocator<std::byte>(ledger)),
      values_(std::move(*from.values_.clone(ledger))),
      exact_(static_cast<GatheredSegment*>(from.exact_->clone(ledger).release())),
      rotation_(from.rotation_) {}

std::vector<float> LowRankSegment::keys_of(int64_t kv_head, const std::vector<int32_t>& list) const {
  const int64_t dim = shape().head_dim;
  std::vector<float> row(static_cast<size_t>(dim)),
      right(static_cast<size_t>(dim * rank_));  // of this head, [dim, rank]
  for (int64_t r = 0; r < rank_; ++r) {
    load_numbers(right_, shape().dtype, (kv_head * rank_ + r) * dim, dim, row.data());
    for (int64_t c = 0; c < dim; ++c) right[c * rank_ + r] = row[c];
  }
  const kernels::PackedMatrix weights = kernels::pack_weights(right.data(), dim, rank_, DType::f32);
  std::vector<float> left(list.size() * static_cast<size_t>(rank_));
  for (size_t i = 0; i < list.size(); ++i)
    load_numbers(left_, shape().dtype, list[i] * rank_, rank_, &left[i * static_cast<size_t>(rank_)]);
  std::vector<float> keys(list.size() * static_cast<size_t>(dim));
  kernels::matmul(
      {.x = left.data(), .m = std::ssize(list), .x_stride = rank_, .w = &weights, .y = keys.data(), .y_stride = dim});
  rotation_->turn(keys.data(), dim, list);
  return keys;
}

LowRankSegment::Fetched LowRankSegment::with_values(const Lists& lists,
                                                    const std::function<std::vector<float>(int64_t)>& keys) const {
  int64_t count = 0;
  for (const std::vector<int32_t>& list : lists) count += std::ssize(list);
  Buffer rows(ledger_, Tier::device, count * values_.row_bytes());
  Transfer arriving = values_.load(lists, rows.data());
  Fetched fetched{.entries = std::make_unique<GatheredSegment>(shape(), std::ssize(lists.front()), ledger_)};
  std::vector<std::vector<float>> restored;
  for (int64_t head = 0; head < shape().kv_heads; ++head) restored.push_back(keys(head));
  arriving.wait();
  const std::byte* row = rows.data();
  for (int64_t head = 0; head < shape().kv_heads; ++head) {
    const std::vector<int32_t>& list = lists[head];
    fetched.entries->add(head, list, restored[head].data(),
                         numbers_of(row, std::ssize(list), shape().head_dim, shape().dtype).data());
    row += std::ssize(list) * values_.row_bytes();
  }
  fetched.loaded = arriving.as_load();
  return fetched;
}

LowRankSegment::Fetched LowRankSegment::fetch(const Lists& lists) const {
  return with_values(lists, [&](int64_t head) { return keys_of(head, lists[head]); });
}

LowRankSegment::Fetched LowRankSegment::fetch_all() const {
  const std::vector<int32_t> list = positions(0);
  return with_values(Lists(static_cast<size_t>(shape().kv_heads), list), [&](int64_t head) {
    const std::vector<int32_t> exact = exact_->positions(head);
    std::vector<float> exact_keys(exact.size() * static_cast<size_t>(shape().head_dim));
    exact_->read(head, exact_keys.data(), nullptr);
    std::vector<float> keys = keys_of(head, list);
    for (size_t i = 0; i < exact.size(); ++i)
      std::copy_n(&exact_keys[i * shape().head_dim], shape().head_dim, &keys[exact[i] * shape().head_dim]);
    return keys;
  });
}

std::vector<int32_t> LowRankSegment::positions(int64_t /*kv_head*/) const {
  std::vector<int32_t> all(static_cast<size_t>(n_));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int64_t LowRankSegment::bytes() const {
  return static_cast<int64_t>(left_.capacity() + right_.capacity()) + exact_->bytes();
}

void LowRankSegment::plan(const LayerQueries& queries, AttentionPlan& to) const {
  AttentionPlan exact = plan_of(*exact_, queries);
  AttentionItem& item = to.add(*this);
  item.stored = exact_.get();
  item.dtype = shape().dtype;
  item.runs = std::move(exact.items.front().runs);
  item.gather = [this] { return fetch_all().entries; };
}

std::unique_ptr<Segment> LowRankSegment::clone(const LedgerPtr& ledger) const {
  return std::unique_ptr<Segment>(new LowRankSegment(*this, ledger));
}

}  // namespace kvarena::storage
