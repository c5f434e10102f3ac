#include "harness/cache/hierarchical_segment.h"

#include <algorithm>
#include <cstring>

#include "harness/cache/run_attention.h"
#include "harness/core/error.h"

namespace kvarena {
namespace {

using kernels::CellKind;

constexpr int kPlaneBits = 4;
constexpr float kStep = 1.0F / 16;  // of the lower plane, in steps of the upper one

/// What is shown of a segment in place of itself.
const Segment& shown(const Segment& segment) {
  const auto* hierarchical = dynamic_cast<const HierarchicalSegment*>(&segment);
  return hierarchical != nullptr ? hierarchical->upper() : segment;
}

}  // namespace

HierarchicalSegment::HierarchicalSegment(const LayerShape& shape, int64_t key_group, int64_t value_group,
                                         LedgerPtr ledger)
    : shape_(shape), ledger_(std::move(ledger)), lower_(static_cast<size_t>(shape.kv_heads)) {
  const QuantizedFormat format{
      .keys = {.bits = kPlaneBits, .group_size = key_group, .meta = DType::f16},
      .values = {.bits = kPlaneBits, .group_size = value_group, .meta = DType::f16},
  };
  upper_ = std::make_unique<QuantizedSegment>(shape_, format, ledger_);
}

kernels::PackedEntries HierarchicalSegment::lower(int64_t kv_head, CellKind kind) const {
  kernels::PackedEntries plane = upper_->packed(kv_head, kind);
  const Buffer& codes = kind == CellKind::keys ? lower_[kv_head].keys : lower_[kv_head].values;
  plane.codes = reinterpret_cast<uint32_t*>(const_cast<std::byte*>(codes.data()));
  plane.zero = nullptr;
  plane.format.rule = kernels::QuantRule::absmax;  // a scale without a zero
  plane.format.first_level = -8;
  return plane;
}

void HierarchicalSegment::encode_lower(int64_t kv_head, CellKind kind, int64_t first, std::span<const float> rows) {
  const int64_t d = shape_.head_dim;
  const int64_t n = static_cast<int64_t>(rows.size()) / d;
  Buffer& codes = kind == CellKind::keys ? lower_[kv_head].keys : lower_[kv_head].values;
  const auto bytes = static_cast<int64_t>(sizeof(uint32_t)) * kernels::packed_code_dwords(first + n, d, kPlaneBits);
  Buffer larger(ledger_, Tier::device, bytes);
  if (codes.bytes() > 0) std::memcpy(larger.data(), codes.data(), static_cast<size_t>(codes.bytes()));
  codes = std::move(larger);

  std::vector<float> left(rows.size());
  kernels::decode_rows(upper_->packed(kv_head, kind), first, n, left.data(), d);
  for (size_t i = 0; i < left.size(); ++i) left[i] = (rows[i] - left[i]) / kStep;
  kernels::PackedEntries plane = lower(kv_head, kind);
  plane.format.rule = kernels::QuantRule::given;  // the upper plane's scale, and a zero of 0
  std::vector<uint16_t> zeros(static_cast<size_t>(kernels::packed_meta_count(kind, first + n, d, plane.format)));
  plane.zero = zeros.data();
  kernels::encode_rows(plane, first, n, left.data(), d);
}

void HierarchicalSegment::take(EntrySegment& tail, int64_t n) {
  const int64_t first = entries(0);
  const auto rows = static_cast<size_t>(n * shape_.head_dim);
  std::vector<std::vector<float>> keys;
  std::vector<std::vector<float>> values;
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    std::vector<float>& k = keys.emplace_back(static_cast<size_t>(tail.entries(h) * shape_.head_dim));
    std::vector<float>& v = values.emplace_back(k.size());
    tail.read(h, k.data(), v.data());
  }
  upper_->take(tail, n);
  upper_->pack_values(n);
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    encode_lower(h, CellKind::keys, first, std::span(keys[h]).first(rows));
    encode_lower(h, CellKind::values, first, std::span(values[h]).first(rows));
  }
}

std::optional<DequantProgram> HierarchicalSegment::dequant_program() const {
  AddCodes keys{.heads = {}, .factor = kStep}, values = keys;
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    keys.heads.push_back(lower(h, CellKind::keys));
    values.heads.push_back(lower(h, CellKind::values));
  }
  return DequantProgram{.stored = upper_.get(),
                     .steps = {.keys = in_order(std::move(keys)), .values = in_order(std::move(values))}};
}

int64_t HierarchicalSegment::bytes() const {
  int64_t total = upper_->bytes();
  for (const Lower& head : lower_) total += head.keys.bytes() + head.values.bytes();
  return total;
}

LayerShape HierarchicalSegment::float_shape() const {
  LayerShape shape = shape_;
  shape.dtype = DType::f32;
  return shape;
}

void HierarchicalSegment::decode(int64_t kv_head, CellKind kind, const Chunk& chunk, float* cells) const {
  const int64_t first = chunk.first / kernels::kCell;
  const int64_t count = kernels::cells_for(chunk.count);
  std::vector<float> more(static_cast<size_t>(count * kernels::kCell * shape_.head_dim));
  kernels::decode_cells(upper_->packed(kv_head, kind), first, count, cells);
  kernels::decode_cells(lower(kv_head, kind), first, count, more.data());
  for (size_t i = 0; i < more.size(); ++i) cells[i] += kStep * more[i];
}

template <class Visit>
void HierarchicalSegment::each_chunk(const Visit& visit) const {
  const int64_t total = entries(0);
  Chunk chunk;
  for (chunk.first = 0; chunk.first < total; chunk.first += kernels::kChunk) {
    chunk.count = std::min(kernels::kChunk, total - chunk.first);
    const int64_t floats = kernels::cells_for(chunk.count) * kernels::kCell * shape_.head_dim;
    chunk.keys.resize(static_cast<size_t>(floats * shape_.kv_heads));
    chunk.values.resize(chunk.keys.size());
    std::vector<kernels::HeadRun> runs;
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      decode(h, CellKind::keys, chunk, &chunk.keys[h * floats]);
      decode(h, CellKind::values, chunk, &chunk.values[h * floats]);
      runs.push_back({.keys = &chunk.keys[h * floats], .values = &chunk.values[h * floats], .entries = chunk.count});
    }
    visit(chunk, runs);
  }
}

void HierarchicalSegment::attend(const LayerQueries& queries, bool causal, kernels::AttentionState& state) const {
  KVARENA_ASSERT(!causal, "packed entries precede every query");
  each_chunk([&](const Chunk& chunk, const std::vector<kernels::HeadRun>& runs) {
    if (shape_.window > 0) {
      const auto at = [&](int64_t head) {
        const std::vector<int32_t> all = positions(head);
        return std::vector<int32_t>(all.begin() + chunk.first, all.begin() + chunk.first + chunk.count);
      };
      attend_window(float_shape(), runs, at, queries, state);
    } else {
      attend_runs(float_shape(), runs, queries, /*causal=*/false, state);
    }
  });
}

void HierarchicalSegment::add_probabilities(const LayerQueries& queries, bool causal, const float* lse, float* sums,
                                            int64_t row_stride) const {
  KVARENA_ASSERT(!causal, "packed entries precede every query");
  each_chunk([&](const Chunk& chunk, const std::vector<kernels::HeadRun>& runs) {
    if (shape_.window > 0) {
      const auto at = [&](int64_t head) {
        const std::vector<int32_t> all = positions(head);
        return std::vector<int32_t>(all.begin() + chunk.first, all.begin() + chunk.first + chunk.count);
      };
      add_window_probabilities(float_shape(), runs, at, queries, lse, sums + chunk.first, row_stride);
    } else {
      add_run_probabilities(float_shape(), runs, queries, /*causal=*/false, lse, sums + chunk.first, row_stride);
    }
  });
}

void HierarchicalSegment::read(int64_t kv_head, float* keys, float* values) const {
  const int64_t d = shape_.head_dim;
  const int64_t n = entries(kv_head);
  std::vector<float> more(static_cast<size_t>(n * d));
  for (const auto& [kind, rows] : {std::pair{CellKind::keys, keys}, std::pair{CellKind::values, values}}) {
    if (rows == nullptr) continue;
    kernels::decode_rows(upper_->packed(kv_head, kind), 0, n, rows, d);
    kernels::decode_rows(lower(kv_head, kind), 0, n, more.data(), d);
    for (size_t i = 0; i < more.size(); ++i) rows[i] += kStep * more[i];
  }
}

std::unique_ptr<Segment> HierarchicalSegment::clone(const LedgerPtr& ledger) const {
  const int64_t key_group = upper_->packed(0, CellKind::keys).format.group_size;
  const int64_t value_group = upper_->packed(0, CellKind::values).format.group_size;
  auto copy = std::make_unique<HierarchicalSegment>(shape_, key_group, value_group, ledger);
  std::unique_ptr<Segment> upper = upper_->clone(ledger);
  copy->upper_.reset(static_cast<QuantizedSegment*>(upper.release()));
  for (size_t h = 0; h < lower_.size(); ++h) {
    copy->lower_[h] = {.keys = lower_[h].keys.clone(ledger), .values = lower_[h].values.clone(ledger)};
  }
  return copy;
}

std::vector<int32_t> UpperPlaneView::positions(int64_t kv_head) const {
  std::vector<int32_t> all;
  for (const auto& segment : cache_->segments()) {
    const std::vector<int32_t> part = segment->positions(kv_head);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void UpperPlaneView::attend(const LayerQueries& queries, bool /*causal*/, kernels::AttentionState& state) const {
  for (const auto& segment : cache_->segments()) {
    shown(*segment).attend(queries, /*causal=*/segment == cache_->segments().back(), state);
  }
}

void UpperPlaneView::add_probabilities(const LayerQueries& queries, bool /*causal*/, const float* lse, float* sums,
                                  int64_t row_stride) const {
  for (const auto& segment : cache_->segments()) {
    shown(*segment).add_probabilities(queries, /*causal=*/segment == cache_->segments().back(), lse, sums, row_stride);
    sums += segment->entries(0);  // every head of a packed layer holds the same number
  }
}

void UpperPlaneView::read(int64_t kv_head, float* keys, float* values) const {
  for (const auto& segment : cache_->segments()) {
    shown(*segment).read(kv_head, keys, values);
    const int64_t floats = segment->entries(kv_head) * cache_->shape().head_dim;
    if (keys != nullptr) keys += floats;
    if (values != nullptr) values += floats;
  }
}

std::unique_ptr<Segment> UpperPlaneView::clone(const LedgerPtr& /*ledger*/) const {
  return std::make_unique<UpperPlaneView>(*cache_);
}

}  // namespace kvarena
