#include "harness/cache/codec_side_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cache/consecutive_runs.h"
#include "harness/cache/rotation_tables.h"
#include "kernels/rope/rope.h"

namespace kvarena {

SparseRows::SparseRows(const LedgerPtr& ledger)
    : counts_(LedgerAllocator<uint16_t>(ledger)),
      starts_(LedgerAllocator<uint32_t>(ledger)),
      channels_(LedgerAllocator<uint16_t>(ledger)),
      values_(LedgerAllocator<uint16_t>(ledger)) {}

SparseRows::SparseRows(const SparseRows& from, const LedgerPtr& ledger) : SparseRows(ledger) {
  counts_.assign(from.counts_.begin(), from.counts_.end());
  starts_.assign(from.starts_.begin(), from.starts_.end());
  channels_.assign(from.channels_.begin(), from.channels_.end());
  values_.assign(from.values_.begin(), from.values_.end());
}

void SparseRows::append(const std::vector<Element>& elements) {
  if (counts_.size() % kStride == 0) starts_.push_back(static_cast<uint32_t>(channels_.size()));
  counts_.push_back(static_cast<uint16_t>(elements.size()));
  for (const Element& element : elements) {
    channels_.push_back(element.channel);
    values_.push_back(kernels::f32_to_f16(element.value));
  }
}

SparseOverride SparseRows::dequant_op() const {
  return {.read = [this](int64_t first, int64_t count, SparseOverride::Numbers& to) {
    size_t at = starts_[static_cast<size_t>(first / kStride)];
    for (int64_t e = first / kStride * kStride; e < first; ++e) at += counts_[e];
    for (int64_t e = first; e < first + count; ++e) {
      to.counts.push_back(counts_[e]);
      for (int64_t k = 0; k < counts_[e]; ++k, ++at)
        to.values.push_back({.channel = channels_[at], .value = kernels::f16_to_f32(values_[at])});
    }
  }};
}

void SparseRows::shrink() {
  counts_.shrink_to_fit();
  starts_.shrink_to_fit();
  channels_.shrink_to_fit();
  values_.shrink_to_fit();
}

int64_t SparseRows::bytes() const {
  return static_cast<int64_t>(sizeof(uint16_t) * (counts_.capacity() + channels_.capacity() + values_.capacity()) +
                              sizeof(uint32_t) * starts_.capacity());
}

void SparseRows::save(CacheWriter& to) const {
  to.put_all(std::span<const uint16_t>(counts_));
  to.put_all(std::span<const uint16_t>(channels_));
  to.put_all(std::span<const uint16_t>(values_));
}

void SparseRows::load(CacheReader& from, int64_t entries, int64_t channels) {
  from.get_vector(counts_, static_cast<size_t>(entries));
  size_t elements = 0;
  for (size_t e = 0; e < counts_.size(); ++e) {
    if (e % kStride == 0) starts_.push_back(static_cast<uint32_t>(elements));
    elements += counts_[e];
  }
  from.get_vector(channels_, elements);
  from.get_vector(values_, elements);
  const bool all_there = std::ranges::all_of(channels_, [&](uint16_t channel) { return channel < channels; });
  if (!all_there) CacheReader::damaged("a number of another channel", fmt::format("one of {}", channels));
}

void RotaryKeys::undo(float* rows, const std::vector<int32_t>& positions) const {
  // Turned the other way is mirrored, turned and mirrored back.
  const auto mirror = [&] {
    for (size_t row = 0; row < positions.size(); ++row) {
      float* const second = rows + (2 * static_cast<int64_t>(row) + 1) * half();
      for (int64_t c = 0; c < half(); ++c) second[c] = -second[c];
    }
  };
  mirror();
  redo(rows, positions);
  mirror();
}

void RotaryKeys::redo(float* rows, const std::vector<int32_t>& positions) const { turn(rows, positions); }

void RotaryKeys::turn(float* rows, const std::vector<int32_t>& by) const {
  if (half() == 0 || by.empty()) return;
  const RotationTables& tables = rotation_tables_up_to(*frequencies_, std::ranges::max(by));
  each_consecutive_run(by, [&](int64_t i, int64_t count) {
    const int64_t row = by[static_cast<size_t>(i)] * half();
    kernels::rotate({.x = rows + i * 2 * half(),
                     .tokens = count,
                     .heads = 1,
                     .head_dim = 2 * half(),
                     .token_stride = 2 * half(),
                     .head_stride = 2 * half(),
                     .rotary = 2 * half(),
                     .cos = &tables.cos[static_cast<size_t>(row)],
                     .sin = &tables.sin[static_cast<size_t>(row)]});
  });
}

void RotaryKeys::add_dequant_op(const PositionReader& positions, std::vector<DequantOp>& to) const {
  if (half() > 0) to.emplace_back(RotateKeys{.frequencies = frequencies_, .positions = positions});
}

}  // namespace kvarena
