#include "harness/cache/hierarchical_segment.h"

#include <algorithm>

namespace kvarena {
namespace {

using kernels::CellKind;

constexpr int kPlaneBits = 4;
constexpr float kStep = 1.0F / 16;  // of the lower plane, in steps of the upper one

}  // namespace

HierarchicalSegment::HierarchicalSegment(const LayerShape& shape, int64_t key_group, int64_t value_group,
                                         LedgerPtr ledger)
    : PackedSegment(shape), ledger_(std::move(ledger)), lower_(static_cast<size_t>(shape.kv_heads)) {
  const QuantizedFormat format{
      .keys = {.bits = kPlaneBits, .group_size = key_group, .meta = DType::f16},
      .values = {.bits = kPlaneBits, .group_size = value_group, .meta = DType::f16},
  };
  upper_ = std::make_unique<QuantizedSegment>(shape, format, ledger_);
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
  const int64_t d = shape().head_dim;
  const int64_t n = static_cast<int64_t>(rows.size()) / d;
  Buffer& codes = kind == CellKind::keys ? lower_[kv_head].keys : lower_[kv_head].values;
  const auto bytes = static_cast<int64_t>(sizeof(uint32_t)) * kernels::packed_code_dwords(first + n, d, kPlaneBits);
  codes.resize(ledger_, std::max(bytes, codes.bytes()));  // codes of entries that were taken back are written over

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
  const auto rows = static_cast<size_t>(n * shape().head_dim);
  std::vector<std::vector<float>> keys;
  std::vector<std::vector<float>> values;
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    std::vector<float>& k = keys.emplace_back(static_cast<size_t>(tail.entries(h) * shape().head_dim));
    std::vector<float>& v = values.emplace_back(k.size());
    tail.read(h, k.data(), v.data());
  }
  upper_->take(tail, n);
  upper_->pack_values(n);
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    encode_lower(h, CellKind::keys, first, std::span(keys[h]).first(rows));
    encode_lower(h, CellKind::values, first, std::span(values[h]).first(rows));
  }
}

void HierarchicalSegment::plan(const LayerQueries& queries, AttentionPlan& to) const {
  AddCodes keys{.heads = {}, .factor = kStep}, values = keys;
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    keys.heads.push_back(lower(h, CellKind::keys));
    values.heads.push_back(lower(h, CellKind::values));
  }
  upper_->plan(queries, to);
  to.items.back().from = this;
  to.items.back().steps = {.keys = in_order(std::move(keys)), .values = in_order(std::move(values))};
}

int64_t HierarchicalSegment::bytes() const {
  int64_t total = upper_->bytes();
  for (const Lower& head : lower_) total += head.keys.bytes() + head.values.bytes();
  return total;
}

std::unique_ptr<Segment> HierarchicalSegment::clone(const LedgerPtr& ledger) const {
  const int64_t key_group = upper_->packed(0, CellKind::keys).format.group_size;
  const int64_t value_group = upper_->packed(0, CellKind::values).format.group_size;
  auto copy = std::make_unique<HierarchicalSegment>(shape(), key_group, value_group, ledger);
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

/// Lower planes are the only steps of a hierarchical cache.
void UpperPlaneView::plan(const LayerQueries& queries, AttentionPlan& to) const {
  cache_->plan(queries, to);
  for (AttentionItem& item : to.items) item.steps = {};
}

std::unique_ptr<Segment> UpperPlaneView::clone(const LedgerPtr& /*ledger*/) const {
  return std::make_unique<UpperPlaneView>(*cache_);
}

}  // namespace kvarena
