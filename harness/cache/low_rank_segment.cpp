#include "harness/cache/low_rank_segment.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvarena {
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

Cells values_of(const LayerShape& shape, const std::byte* memory) {
  return {.kind = CellKind::values,
          .dtype = shape.dtype,
          .head_dim = shape.head_dim,
          .data = const_cast<std::byte*>(memory)};
}

/// Turns a pair by an angle of this cosine and sine.
void turn_pairs(const KeyRotation& rotation, float* key, double angle_of_one, double factor) {
  const size_t pairs = rotation.inverse.size();
  for (size_t c = 0; c < pairs; ++c) {
    const double angle = angle_of_one * rotation.inverse[c];
    const double cosine = std::cos(angle) * factor;
    const double sine = std::sin(angle) * factor;
    const double a = key[c];
    const double b = key[c + pairs];
    key[c] = static_cast<float>(a * cosine - b * sine);
    key[c + pairs] = static_cast<float>(b * cosine + a * sine);
  }
}

}  // namespace

void KeyRotation::turn(float* key, int64_t position) const {
  turn_pairs(*this, key, static_cast<double>(position), magnitude);
}

void KeyRotation::undo(float* key, int64_t position) const {
  turn_pairs(*this, key, -static_cast<double>(position), 1 / magnitude);
}

LowRankSegment::LowRankSegment(const EntrySegment& from, const Parts& parts, LedgerPtr ledger)
    : shape_(from.shape()),
      ledger_(std::move(ledger)),
      n_(parts.n),
      rank_(parts.rank),
      left_(stored(parts.left, shape_.dtype, ledger_)),
      right_(stored(parts.right, shape_.dtype, ledger_)),
      exact_(std::make_unique<PickedSegment>(shape_, static_cast<int64_t>(parts.exact.front().size()), ledger_)),
      rotation_(parts.rotation) {
  std::vector<float> key(static_cast<size_t>(shape_.head_dim));
  std::vector<float> value(key.size());
  for (int64_t head = 0; head < shape_.kv_heads; ++head) {
    const kernels::HeadRun run = from.run(head);
    LedgerVector<std::byte>& own = values_.emplace_back(LedgerAllocator<std::byte>(ledger_, Tier::host));
    own.resize(static_cast<size_t>(kernels::cell_bytes(n_, shape_.head_dim, shape_.dtype)));
    kernels::copy_entries(values_of(shape_, static_cast<const std::byte*>(run.values)), 0, n_,
                          values_of(shape_, own.data()), 0);
    const Cells keys{.kind = CellKind::keys,
                     .dtype = shape_.dtype,
                     .head_dim = shape_.head_dim,
                     .data = const_cast<void*>(run.keys)};
    for (const int32_t entry : parts.exact[head]) {
      kernels::load_rows(keys, entry, 1, key.data(), shape_.head_dim);
      kernels::load_rows(values_of(shape_, own.data()), entry, 1, value.data(), shape_.head_dim);
      exact_->add(head, entry, key.data(), value.data());
    }
  }
}

LowRankSegment::LowRankSegment(const LowRankSegment& from, const LedgerPtr& ledger)
    : shape_(from.shape_),
      ledger_(ledger),
      n_(from.n_),
      rank_(from.rank_),
      left_(from.left_.begin(), from.left_.end(), LedgerAllocator<std::byte>(ledger)),
      right_(from.right_.begin(), from.right_.end(), LedgerAllocator<std::byte>(ledger)),
      exact_(static_cast<PickedSegment*>(from.exact_->clone(ledger).release())),
      rotation_(from.rotation_) {
  for (const auto& values : from.values_) {
    values_.emplace_back(values.begin(), values.end(), LedgerAllocator<std::byte>(ledger, Tier::host));
  }
}

std::vector<float> LowRankSegment::keys_of(int64_t kv_head, const std::vector<int32_t>& list) const {
  const int64_t dim = shape_.head_dim;
  std::vector<float> right(static_cast<size_t>(rank_ * dim));  // of this head, as numbers
  for (int64_t i = 0; i < rank_ * dim; ++i) {
    right[i] = kernels::load_element(right_.data(), shape_.dtype, kv_head * rank_ * dim + i);
  }
  std::vector<float> keys(list.size() * static_cast<size_t>(dim), 0.0F);
  float* key = keys.data();
  for (const int32_t entry : list) {
    for (int64_t r = 0; r < rank_; ++r) {
      const float weight = kernels::load_element(left_.data(), shape_.dtype, entry * rank_ + r);
      const float* row = right.data() + r * dim;
      for (int64_t c = 0; c < dim; ++c) key[c] += weight * row[c];
    }
    rotation_->turn(key, entry);
    key += dim;
  }
  return keys;
}

std::unique_ptr<PickedSegment> LowRankSegment::pick(const std::vector<std::vector<int32_t>>& lists) const {
  auto picked = std::make_unique<PickedSegment>(shape_, static_cast<int64_t>(lists.front().size()), ledger_);
  std::vector<float> value(static_cast<size_t>(shape_.head_dim));
  for (int64_t head = 0; head < shape_.kv_heads; ++head) {
    const std::vector<float> keys = keys_of(head, lists[head]);
    const float* key = keys.data();
    for (const int32_t entry : lists[head]) {
      kernels::load_rows(values_of(shape_, values_[head].data()), entry, 1, value.data(), shape_.head_dim);
      picked->add(head, entry, key, value.data());
      key += shape_.head_dim;
    }
  }
  return picked;
}

std::unique_ptr<PickedSegment> LowRankSegment::everything() const {
  auto all = std::make_unique<PickedSegment>(shape_, n_, ledger_);
  std::vector<float> value(static_cast<size_t>(shape_.head_dim));
  for (int64_t head = 0; head < shape_.kv_heads; ++head) {
    const std::vector<int32_t> exact = exact_->positions(head);
    std::vector<float> exact_keys(exact.size() * static_cast<size_t>(shape_.head_dim));
    exact_->read(head, exact_keys.data(), nullptr);
    const std::vector<float> keys = keys_of(head, positions(head));
    size_t next = 0;  // of the exact ones
    for (int32_t entry = 0; entry < n_; ++entry) {
      kernels::load_rows(values_of(shape_, values_[head].data()), entry, 1, value.data(), shape_.head_dim);
      if (next < exact.size() && exact[next] == entry) {
        all->add(head, entry, exact_keys.data() + static_cast<int64_t>(next) * shape_.head_dim, value.data());
        ++next;
      } else {
        all->add(head, entry, keys.data() + static_cast<int64_t>(entry) * shape_.head_dim, value.data());
      }
    }
  }
  return all;
}

std::vector<int32_t> LowRankSegment::positions(int64_t /*kv_head*/) const {
  std::vector<int32_t> all(static_cast<size_t>(n_));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int64_t LowRankSegment::bytes() const {
  return static_cast<int64_t>(left_.capacity() + right_.capacity()) + exact_->bytes();
}

void LowRankSegment::attend(const LayerQueries& queries, bool causal, kernels::AttentionState& state) const {
  everything()->attend(queries, causal, state);
}

void LowRankSegment::add_probabilities(const LayerQueries& queries, bool causal, const float* lse, float* sums,
                                       int64_t row_stride) const {
  everything()->add_probabilities(queries, causal, lse, sums, row_stride);
}

void LowRankSegment::read(int64_t kv_head, float* keys, float* values) const {
  everything()->read(kv_head, keys, values);
}

std::unique_ptr<Segment> LowRankSegment::clone(const LedgerPtr& ledger) const {
  return std::unique_ptr<Segment>(new LowRankSegment(*this, ledger));
}

}  // namespace kvarena
