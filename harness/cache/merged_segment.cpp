#include "harness/cache/merged_segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <tuple>

#include "harness/core/error.h"
#include "kernels/cells/cells.h"

namespace kvarena {
namespace {

double norm(const float* row, int64_t d) {
  double squares = 0;
  for (int64_t c = 0; c < d; ++c) squares += static_cast<double>(row[c]) * row[c];
  return std::sqrt(squares);
}

kernels::Cells rows_of(const LayerShape& shape, const Buffer& data) {
  return {.kind = kernels::CellKind::values,
          .dtype = shape.dtype,
          .head_dim = shape.head_dim,
          .data = const_cast<std::byte*>(data.data())};
}

/// Rows [entries, head_dim] of one head of a tail.
std::pair<std::vector<float>, std::vector<float>> entries_of(const EntrySegment& tail, int64_t head) {
  std::vector<float> keys(static_cast<size_t>(tail.entries(head) * tail.shape().head_dim));
  std::vector<float> values(keys.size());
  tail.read(head, keys.data(), values.data());
  return {std::move(keys), std::move(values)};
}

}  // namespace

double interpolate_directions(const float* lower, const float* upper, int64_t d, double t, float* direction) {
  const double below = norm(lower, d);
  const double above = norm(upper, d);
  double cosine = 0;
  for (int64_t c = 0; c < d; ++c) cosine += static_cast<double>(lower[c]) * upper[c];
  cosine = below > 0 && above > 0 ? std::clamp(cosine / (below * above), -1.0, 1.0) : 0.0;
  const double angle = std::acos(cosine);
  const double sine = std::sin(angle);
  const bool parallel = sine < 1e-6;
  const double u = (parallel ? 1 - t : std::sin((1 - t) * angle) / sine) / std::max(below, 1e-30);
  const double v = (parallel ? t : std::sin(t * angle) / sine) / std::max(above, 1e-30);
  double squares = 0;
  std::vector<double> sum(static_cast<size_t>(d));
  for (int64_t c = 0; c < d; ++c) {
    sum[c] = u * lower[c] + v * upper[c];
    squares += sum[c] * sum[c];
  }
  const double length = squares > 0 ? std::sqrt(squares) : 1;
  for (int64_t c = 0; c < d; ++c) direction[c] = static_cast<float>(sum[c] / length);
  return angle;
}

MergedPair::MergedPair(const LayerShape& shape, const MergeRule& rule, LedgerPtr ledger)
    : rule_(rule), ledger_(std::move(ledger)), shared_(shape, ledger_) {
  for (int64_t head = 0; head < shape.kv_heads; ++head) heads_.emplace_back(ledger_);
}

void MergedPair::retain(Rows& rows, int64_t entry, const float* row) const {
  const LayerShape& shape = shared_.shape();
  const auto count = static_cast<int64_t>(rows.entries.size());
  const int64_t bytes =
      kernels::cells_for(count + 1) * kernels::cell_bytes(kernels::kCell, shape.head_dim, shape.dtype);
  rows.data.resize(ledger_, std::max(bytes, rows.data.bytes()));
  kernels::store_rows(rows_of(shape, rows.data), count, 1, row, shape.head_dim);
  rows.entries.push_back(static_cast<int32_t>(entry));
}

void MergedPair::merge(Side& side, bool first, const std::vector<float>& lower, const std::vector<float>& upper,
                       std::vector<float>& shared) const {
  const int64_t d = shared_.shape().head_dim;
  const auto n = static_cast<int64_t>(lower.size()) / d;
  const auto before = static_cast<int64_t>(side.factors.size()) / 2;
  std::vector<double> angles;
  for (int64_t i = 0; i < n; ++i) {
    const float* a = &lower[i * d];
    const float* b = &upper[i * d];
    angles.push_back(interpolate_directions(a, b, d, rule_.interpolation, &shared[i * d]));
    // At the lower layer's length, so that what both layers have in common is stored as it is.
    const double own = norm(a, d);
    const auto length = static_cast<float>(own > 0 ? own : norm(b, d));
    for (int64_t c = 0; c < d; ++c) shared[i * d + c] *= length;
  }
  if (first) {
    std::vector<double> largest = angles;
    const auto count = std::min(n, static_cast<int64_t>(std::ceil(rule_.retained * static_cast<double>(n) - 1e-9)));
    if (count > 0) {
      std::ranges::nth_element(largest, largest.begin() + (count - 1), std::greater{});
      side.retained_from = largest[count - 1];
    }
    // Equal angles at the limit: the first are retained, until they are enough.
    int64_t ties = count - std::ranges::count_if(angles, [&](double a) { return a > side.retained_from; });
    for (double& angle : angles) {
      if (angle == side.retained_from && ties-- <= 0) angle = -1;
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    if (angles[i] < side.retained_from) continue;
    std::copy_n(&lower[i * d], d, &shared[i * d]);
    retain(side.upper, before + i, &upper[i * d]);
  }
}

void MergedPair::scale(Side& side, const std::vector<float>& lower, const std::vector<float>& upper,
                       const std::vector<float>& stored) const {
  const int64_t d = shared_.shape().head_dim;
  const auto n = static_cast<int64_t>(lower.size()) / d;
  if (side.factors.empty()) side.factors.reserve(static_cast<size_t>(2 * n));
  for (int64_t i = 0; i < n; ++i) {
    const float* row = &stored[i * d];
    const double length = norm(row, d);
    for (const float* own : {&lower[i * d], &upper[i * d]}) {
      side.factors.push_back(length > 0 ? static_cast<float>(norm(own, d) / length) : 0.0F);
    }
  }
}

void MergedPair::take(EntrySegment& lower, EntrySegment& upper) {
  const LayerShape& shape = shared_.shape();
  const int64_t d = shape.head_dim;
  const int64_t n = lower.entries(0);
  KVARENA_ASSERT(n == upper.entries(0) && !lower.ragged() && !upper.ragged(),
                 fmt::format("{} and {} entries to merge", n, upper.entries(0)));
  if (n == 0) return;
  const bool first = shared_.entries(0) == 0;
  std::vector<float> keys(static_cast<size_t>(n * shape.kv_heads * d));  // [n, kv_heads, head_dim]
  std::vector<float> values(keys.size());
  std::vector<std::array<std::vector<float>, 4>> own;  // of each head: keys and values of the lower and the upper layer
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    auto [lower_keys, lower_values] = entries_of(lower, head);
    auto [upper_keys, upper_values] = entries_of(upper, head);
    std::vector<float> key(lower_keys.size());
    std::vector<float> value(lower_keys.size());
    merge(heads_[head].keys, first, lower_keys, upper_keys, key);
    merge(heads_[head].values, first, lower_values, upper_values, value);
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(&key[i * d], d, &keys[(i * shape.kv_heads + head) * d]);
      std::copy_n(&value[i * d], d, &values[(i * shape.kv_heads + head) * d]);
    }
    own.push_back({std::move(lower_keys), std::move(upper_keys), std::move(lower_values), std::move(upper_values)});
  }
  const int64_t before = shared_.entries(0);
  shared_.append(keys.data(), values.data(), n, shape.kv_heads * d, lower.position(0, 0));
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    std::vector<float> stored_keys(static_cast<size_t>(n * d));
    std::vector<float> stored_values(stored_keys.size());
    const kernels::HeadRun run = shared_.run(head);
    for (const auto& [kind, data, to] : {std::tuple{kernels::CellKind::keys, run.keys, stored_keys.data()},
                                         std::tuple{kernels::CellKind::values, run.values, stored_values.data()}}) {
      const kernels::Cells cells{.kind = kind, .dtype = shape.dtype, .head_dim = d, .data = const_cast<void*>(data)};
      kernels::load_rows(cells, before, n, to, d);
    }
    scale(heads_[head].keys, own[head][0], own[head][1], stored_keys);
    scale(heads_[head].values, own[head][2], own[head][3], stored_values);
  }
  lower.drop_front(n);
  upper.drop_front(n);
}

std::shared_ptr<MergedPair> MergedPair::copy_in(const LedgerPtr& ledger) const {
  if (auto made = last_copy_.lock(); made && made->ledger_ == ledger) return made;
  auto copy = std::make_shared<MergedPair>(shape(), rule_, ledger);
  if (shared_.entries(0) > 0) copy->shared_.append_entries(shared_, 0, shared_.entries(0));
  for (size_t head = 0; head < heads_.size(); ++head) {
    for (const auto& [from, to] : {std::pair{&heads_[head].keys, &copy->heads_[head].keys},
                                   std::pair{&heads_[head].values, &copy->heads_[head].values}}) {
      to->factors.assign(from->factors.begin(), from->factors.end());
      to->upper.entries.assign(from->upper.entries.begin(), from->upper.entries.end());
      to->upper.data = from->upper.data.clone(ledger);
      to->retained_from = from->retained_from;
    }
  }
  last_copy_ = copy;
  return copy;
}

void MergedPair::mark() {
  marked_.clear();
  marked_entries_ = shared_.entries(0);
  for (const Head& head : heads_) {
    for (const Side* side : {&head.keys, &head.values}) marked_.push_back(side->upper.entries.size());
  }
}

void MergedPair::rewind() {
  shared_.truncate(marked_entries_);
  auto rows = marked_.begin();
  for (Head& head : heads_) {
    for (Side* side : {&head.keys, &head.values}) {
      side->factors.resize(static_cast<size_t>(2 * marked_entries_));
      side->upper.entries.resize(*rows++);
    }
  }
  marked_.clear();
}

int64_t MergedPair::bytes() const {
  int64_t total = shared_.bytes();
  for (const Head& head : heads_) {
    for (const Side* side : {&head.keys, &head.values}) {
      total += static_cast<int64_t>(side->factors.capacity() * sizeof(float)) +
               static_cast<int64_t>(side->upper.entries.capacity() * sizeof(int32_t)) + side->upper.data.bytes();
    }
  }
  return total;
}

std::vector<DequantOp> MergedSegment::steps(const std::vector<const MergedPair::Side*>& sides) const {
  const LayerShape& shape = pair_->shape();
  ScaleEntries scaled{.read = [this, sides](int64_t first, int64_t count, std::vector<kernels::RowScale>& to) {
    for (int64_t entry = first; entry < first + count; ++entry) {
      for (const MergedPair::Side* side : sides) to.push_back({.factor = factor(*side, entry)});
    }
  }};
  if (!upper_) return in_order(std::move(scaled));
  const auto retained = [sides, shape](int64_t first, int64_t count, SparseOverride::Numbers& to) {
    std::vector<float> row(static_cast<size_t>(shape.head_dim));
    std::vector<int64_t> next;  // retained row of each head
    for (const MergedPair::Side* side : sides) {
      next.push_back(std::ranges::lower_bound(side->upper.entries, first) - side->upper.entries.begin());
    }
    for (int64_t entry = first; entry < first + count; ++entry) {
      const size_t before = to.values.size();
      for (size_t head = 0; head < sides.size(); ++head) {
        const MergedPair::Rows& rows = sides[head]->upper;
        if (next[head] == std::ssize(rows.entries) || rows.entries[static_cast<size_t>(next[head])] != entry) continue;
        kernels::load_rows(rows_of(shape, rows.data), next[head]++, 1, row.data(), shape.head_dim);
        for (size_t c = 0; c < row.size(); ++c)
          to.values.push_back({.channel = static_cast<int32_t>(head * row.size() + c), .value = row[c]});
      }
      to.counts.push_back(static_cast<int32_t>(to.values.size() - before));
    }
  };
  return in_order(std::move(scaled), SparseOverride{.read = retained});
}

void MergedSegment::plan(const LayerQueries& queries, AttentionPlan& to) const {
  std::vector<const MergedPair::Side*> keys, values;
  for (const MergedPair::Head& head : pair_->heads_) {
    keys.push_back(&head.keys);
    values.push_back(&head.values);
  }
  pair_->shared_.plan(queries, to);
  to.items.back().from = this;
  to.items.back().steps = {.keys = steps(keys), .values = steps(values)};
}

}  // namespace kvarena
