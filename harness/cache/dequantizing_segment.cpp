#include "harness/cache/dequantizing_segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/cache/run_attention.h"
#include "harness/core/error.h"

namespace kvarena {

using kernels::CellKind;

DequantizingSegment::DequantizingSegment(const LayerShape& shape, const QuantizedFormat& format,
                                 std::unique_ptr<CodecSideData> side_data, LedgerPtr ledger)
    : shape_(shape), ledger_(std::move(ledger)), side_data_(std::move(side_data)) {
  codes_ = std::make_unique<QuantizedSegment>(float_shape(), format, ledger_);
  positions_.assign(static_cast<size_t>(shape_.kv_heads), LedgerVector<int32_t>(LedgerAllocator<int32_t>(ledger_)));
}

DequantizingSegment::DequantizingSegment(const DequantizingSegment& from, const LedgerPtr& ledger)
    : shape_(from.shape_),
      ledger_(ledger),
      side_data_(from.side_data_->clone(ledger)),
      first_position_(from.first_position_),
      contiguous_(from.contiguous_) {
  std::unique_ptr<Segment> codes = from.codes_->clone(ledger);
  codes_.reset(static_cast<QuantizedSegment*>(codes.release()));
  for (const auto& list : from.positions_) {
    positions_.emplace_back(list.begin(), list.end(), LedgerAllocator<int32_t>(ledger));
  }
}

LayerShape DequantizingSegment::float_shape() const {
  LayerShape shape = shape_;
  shape.dtype = DType::f32;
  return shape;
}

EntryBlock DequantizingSegment::front_of(const EntrySegment& tail, int64_t n) const {
  const int64_t d = shape_.head_dim;
  EntryBlock block{.kv_heads = shape_.kv_heads, .count = n, .head_dim = d};
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    std::vector<float> keys(static_cast<size_t>(tail.entries(h) * d));
    std::vector<float> values(keys.size());
    tail.read(h, keys.data(), values.data());
    keys.resize(static_cast<size_t>(n * d));
    values.resize(keys.size());
    require_finite(keys, "key", h);
    require_finite(values, "value", h);
    block.keys.insert(block.keys.end(), keys.begin(), keys.end());
    block.values.insert(block.values.end(), values.begin(), values.end());
    block.positions.push_back(tail.positions(h));
    block.positions.back().resize(static_cast<size_t>(n));
  }
  return block;
}

void DequantizingSegment::take(EntrySegment& tail, int64_t n) {
  const int64_t first = entries(0);
  const int64_t d = shape_.head_dim;
  EntryBlock block = front_of(tail, n);
  note_positions(block);
  side_data_->prepare(first, block);

  const auto scratch_ledger = std::make_shared<MemoryLedger>();
  EntrySegment prepared(float_shape(), scratch_ledger);
  std::vector<float> keys(block.keys.size());  // [n, kv_heads, head_dim]
  std::vector<float> values(block.values.size());
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(block.key(h, i), d, &keys[(i * shape_.kv_heads + h) * d]);
      std::copy_n(block.value(h, i), d, &values[(i * shape_.kv_heads + h) * d]);
    }
  }
  prepared.append(keys.data(), values.data(), n, shape_.kv_heads * d, first);
  codes_->take(prepared, n);
  codes_->pack_values(codes_->unpacked_values());

  EntryBlock decoded = block;
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    codes_->read_range(h, first, n, decoded.key(h, 0), decoded.value(h, 0));
  }
  side_data_->complete(first, block, decoded);
  tail.drop_front(n);
}

void DequantizingSegment::note_positions(const EntryBlock& block) {
  const int64_t before = entries(0);
  if (before == 0) first_position_ = block.positions[0].front();
  bool follow = contiguous_;
  for (const auto& list : block.positions) {
    for (size_t i = 0; i < list.size() && follow; ++i) {
      follow = list[i] == first_position_ + before + static_cast<int64_t>(i);
    }
  }
  if (follow) return;
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    if (contiguous_) {
      const std::vector<int32_t> known = positions(h, 0, before);
      positions_[h].assign(known.begin(), known.end());
    }
  }
  contiguous_ = false;
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    positions_[h].insert(positions_[h].end(), block.positions[h].begin(), block.positions[h].end());
  }
}

std::vector<int32_t> DequantizingSegment::positions(int64_t kv_head, int64_t first, int64_t count) const {
  if (!contiguous_) return {positions_[kv_head].begin() + first, positions_[kv_head].begin() + first + count};
  std::vector<int32_t> list(static_cast<size_t>(count));
  std::iota(list.begin(), list.end(), static_cast<int32_t>(first_position_ + first));
  return list;
}

std::vector<int32_t> DequantizingSegment::positions(int64_t kv_head) const {
  return positions(kv_head, 0, entries(kv_head));
}

std::optional<DequantProgram> DequantizingSegment::dequant_program() const {
  const auto at = [this](int64_t kv_head, int64_t first, int64_t count) { return positions(kv_head, first, count); };
  std::optional<DequantOps> steps = side_data_->device_ops(at);
  if (!steps) return std::nullopt;
  return DequantProgram{.stored = codes_.get(), .steps = std::move(*steps)};
}

int64_t DequantizingSegment::bytes() const {
  int64_t total = codes_->bytes() + side_data_->bytes();
  for (const auto& list : positions_) total += static_cast<int64_t>(list.capacity() * sizeof(int32_t));
  return total;
}

template <class Visit>
void DequantizingSegment::each_chunk(const Visit& visit) const {
  const int64_t total = entries(0);
  DequantChunk chunk{.kv_heads = shape_.kv_heads, .head_dim = shape_.head_dim};
  for (chunk.first = 0; chunk.first < total; chunk.first += kernels::kChunk) {
    chunk.count = std::min(kernels::kChunk, total - chunk.first);
    chunk.keys.resize(static_cast<size_t>(chunk.head_floats() * shape_.kv_heads));
    chunk.values.resize(chunk.keys.size());
    chunk.positions.clear();
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      chunk.positions.push_back(positions(h, chunk.first, chunk.count));
      codes_->decode_cells(h, chunk.first, chunk.count, chunk.key_cells(h), chunk.value_cells(h));
    }
    side_data_->restore(chunk);
    std::vector<kernels::HeadRun> runs;
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      runs.push_back({.keys = chunk.key_cells(h), .values = chunk.value_cells(h), .entries = chunk.count});
    }
    visit(chunk, runs);
  }
}

void DequantizingSegment::attend(const LayerQueries& queries, bool causal, kernels::AttentionState& state) const {
  KVARENA_ASSERT(!causal, "restored entries precede every query");
  const LayerShape shape = float_shape();
  each_chunk([&](const DequantChunk& chunk, const std::vector<kernels::HeadRun>& runs) {
    if (shape.window > 0) {
      attend_window(
          shape, runs, [&](int64_t head) { return chunk.positions[head]; }, queries, state);
    } else {
      attend_runs(shape, runs, queries, /*causal=*/false, state);
    }
  });
}

void DequantizingSegment::add_probabilities(const LayerQueries& queries, bool causal, const float* lse, float* sums,
                                        int64_t row_stride) const {
  KVARENA_ASSERT(!causal, "restored entries precede every query");
  const LayerShape shape = float_shape();
  each_chunk([&](const DequantChunk& chunk, const std::vector<kernels::HeadRun>& runs) {
    if (shape.window > 0) {
      const auto at = [&](int64_t head) { return chunk.positions[head]; };
      add_window_probabilities(shape, runs, at, queries, lse, sums + chunk.first, row_stride);
    } else {
      add_run_probabilities(shape, runs, queries, /*causal=*/false, lse, sums + chunk.first, row_stride);
    }
  });
}

void DequantizingSegment::read(int64_t kv_head, float* keys, float* values) const {
  const int64_t d = shape_.head_dim;
  each_chunk([&](const DequantChunk& chunk, const std::vector<kernels::HeadRun>& runs) {
    const kernels::HeadRun& run = runs[kv_head];
    for (const auto& [kind, data, to] :
         {std::tuple{CellKind::keys, run.keys, keys}, std::tuple{CellKind::values, run.values, values}}) {
      if (to == nullptr) continue;
      const kernels::Cells cells{.kind = kind, .dtype = DType::f32, .head_dim = d, .data = const_cast<void*>(data)};
      kernels::load_rows(cells, 0, chunk.count, to + chunk.first * d, d);
    }
  });
}

std::unique_ptr<Segment> DequantizingSegment::clone(const LedgerPtr& ledger) const {
  return std::unique_ptr<Segment>(new DequantizingSegment(*this, ledger));
}

}  // namespace kvarena
