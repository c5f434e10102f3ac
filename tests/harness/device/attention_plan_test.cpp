// A storage form and a view that the product does not know: their plans alone say how they are attended to, on the host
// and on a device.
#include <gtest/gtest.h>

#include <cmath>

#include "harness/cache/attend_plan.h"
#include "harness/cache/layer_cache.h"
#include "tests/support/offloaded_model.h"
#include "tests/support/random_entries.h"

namespace kvarena::device {
namespace {

using kernels::CellKind;

/// Codes of 8 bits of one side of one head, under a scale of each channel.
struct Int8Side {
  Int8Side(CellKind kind, const std::vector<float>& rows, int64_t d)
      : kind(kind), d(d), entries(std::ssize(rows) / d), scale(static_cast<size_t>(d)) {
    for (size_t i = 0; i < rows.size(); ++i) {
      float& of_channel = scale[i % scale.size()];
      of_channel = std::max(of_channel, std::fabs(rows[i]) / 127);
    }
    std::vector<float> whole(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) whole[i] = std::round(rows[i] / scale[i % scale.size()]);
    kernels::PackedEntries to = packed();
    codes.resize(static_cast<size_t>(kernels::packed_code_dwords(entries, d, 8)));
    ones.assign(static_cast<size_t>(kernels::packed_meta_count(kind, entries, d, to.format)),
                kernels::f32_to_half(1, DType::f16));
    std::vector<uint16_t> zeros(ones.size());
    to = packed();
    to.format.rule = kernels::QuantRule::given;
    to.zero = zeros.data();
    kernels::encode_rows(to, 0, entries, whole.data(), d);
  }
  [[nodiscard]] kernels::PackedEntries packed() const {
    return {.kind = kind,
            .format = {.bits = 8,
                       .group_size = d,
                       .meta = DType::f16,
                       .rule = kernels::QuantRule::absmax,
                       .first_level = -128,
                       .token_groups = true},
            .head_dim = d,
            .codes = const_cast<uint32_t*>(codes.data()),
            .scale = const_cast<uint16_t*>(ones.data()),
            .exact = true};
  }

  CellKind kind;
  int64_t d, entries;
  std::vector<float> scale;  // [d]
  std::vector<uint32_t> codes;
  std::vector<uint16_t> ones;
};

class Int8Segment final : public Segment {
 public:
  explicit Int8Segment(const EntrySegment& from) : Segment(from.shape()) {
    const int64_t d = shape().head_dim;
    for (int64_t h = 0; h < shape().kv_heads; ++h) {
      std::vector<float> keys(static_cast<size_t>(from.entries(h) * d)), values(keys.size());
      from.read(h, keys.data(), values.data());
      keys_.emplace_back(CellKind::keys, keys, d);
      values_.emplace_back(CellKind::values, values, d);
      positions_ = from.positions(h);
    }
  }

  [[nodiscard]] int64_t entries(int64_t /*kv_head*/) const override { return keys_.front().entries; }
  [[nodiscard]] std::vector<int32_t> positions(int64_t /*kv_head*/) const override { return positions_; }
  [[nodiscard]] int64_t bytes() const override { return 0; }
  void plan(const LayerQueries& /*queries*/, AttentionPlan& to) const override {
    AttentionItem& item = to.add(*this);
    item.packed.reserve(2 * keys_.size());
    for (size_t h = 0; h < keys_.size(); ++h) {
      const kernels::PackedEntries& keys = item.packed.emplace_back(keys_[h].packed());
      const kernels::PackedEntries& values = item.packed.emplace_back(values_[h].packed());
      item.runs.push_back({.entries = keys_[h].entries,
                           .packed_keys = &keys,
                           .packed_key_count = keys_[h].entries,
                           .packed_values = &values,
                           .packed_value_count = keys_[h].entries});
    }
    item.steps = {.keys = in_order(scaled(keys_)), .values = in_order(scaled(values_))};
  }
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& /*ledger*/) const override {
    return std::unique_ptr<Segment>(new Int8Segment(shape(), keys_, values_, positions_));
  }

 private:
  Int8Segment(const LayerShape& shape, std::vector<Int8Side> keys, std::vector<Int8Side> values,
              std::vector<int32_t> positions)
      : Segment(shape), keys_(std::move(keys)), values_(std::move(values)), positions_(std::move(positions)) {}
  static ScaleChannels scaled(const std::vector<Int8Side>& heads) {
    return {.read = [&heads] {
      std::vector<kernels::RowScale> scales;
      for (const Int8Side& head : heads) {
        for (const float factor : head.scale) scales.push_back({.factor = factor});
      }
      return scales;
    }};
  }

  std::vector<Int8Side> keys_, values_;  // [kv_heads]
  std::vector<int32_t> positions_;
};

/// Every second entry of a layer, and the newest.
class EverySecond final : public Segment {
 public:
  explicit EverySecond(const LayerCache& cache) : Segment(cache.shape()), cache_(&cache) {
    for (const auto& segment : cache.segments()) {
      std::vector<int32_t>& list = lists_.emplace_back();
      for (int32_t i = 0; i < segment->entries(0); i += 2) list.push_back(i);
    }
    const auto newest = static_cast<int32_t>(cache.tail().entries(0) - 1);
    if (lists_.back().back() != newest) lists_.back().push_back(newest);
  }
  [[nodiscard]] int64_t entries(int64_t /*kv_head*/) const override { return 0; }
  [[nodiscard]] std::vector<int32_t> positions(int64_t /*kv_head*/) const override { return {}; }
  [[nodiscard]] int64_t bytes() const override { return 0; }
  void plan(const LayerQueries& queries, AttentionPlan& to) const override {
    cache_->plan(queries, to);
    for (size_t i = 0; i < to.items.size(); ++i) {
      to.items[i].sees = {};
      to.items[i].lists.assign(static_cast<size_t>(shape().kv_heads), lists_[i]);
    }
  }
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& /*ledger*/) const override { return nullptr; }

 private:
  const LayerCache* cache_;
  std::vector<std::vector<int32_t>> lists_;  // [segments]
};

class SeesEverySecond final : public AttentionHooks {
 public:
  [[nodiscard]] HookAccess reach() const override { return HookAccess::views; }
  void before_attention(int64_t /*layer*/, LayerCache& cache, const LayerQueries& /*queries*/) override {
    cache.view = std::make_unique<EverySecond>(cache);
  }
  void after_attention(int64_t /*layer*/, LayerCache& cache, const LayerQueries& /*queries*/,
                       const float* /*lse*/) override {
    cache.view.reset();
  }
};

class AttentionPlanTest : public ::testing::Test {
 protected:
  static constexpr int64_t kFront = 2 * kernels::kChunk, kTail = 38;  // every second of the front: a chunk

  AttentionPlanTest() : host_(testing::tiny_model(1, kF32, testing::tiny_config())), coded_(host_.make_cache()) {
    const std::vector<int32_t> prompt = testing::tiny_prompt(kFront + kTail);
    (void)fed(host_, coded_, prompt);
    for (LayerCache& layer : coded_.layers) {
      EntrySegment front(layer.shape(), layer.ledger());
      front.append_entries(layer.tail(), 0, kFront);
      layer.tail().drop_front(kFront);
      layer.insert_before_tail(std::make_unique<Int8Segment>(front));
    }
  }
  /// A copy of the cache whose codes are restated as dense entries.
  [[nodiscard]] KvCache restated() const {
    KvCache dense = host_.make_cache();
    dense.length = coded_.length;
    for (size_t i = 0; i < dense.layers.size(); ++i) {
      const LayerCache& from = coded_.layers[i];
      const LayerShape& shape = from.shape();
      const int64_t d = shape.head_dim, row = shape.kv_heads * d;
      std::vector<float> keys(static_cast<size_t>(kFront * row)), values(keys.size());
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        std::vector<float> k(static_cast<size_t>(kFront * d)), v(k.size());
        from.segments().front()->read(h, k.data(), v.data());
        for (int64_t e = 0; e < kFront; ++e) {
          std::copy_n(&k[e * d], d, &keys[e * row + h * d]);
          std::copy_n(&v[e * d], d, &values[e * row + h * d]);
        }
      }
      auto front = std::make_unique<EntrySegment>(shape, dense.ledger);
      front->append(keys.data(), values.data(), kFront, row, 0);
      dense.layers[i].insert_before_tail(std::move(front));
      dense.layers[i].tail().append_entries(from.tail(), 0, kTail);
    }
    return dense;
  }
  /// Logits of a few steps that look at a layer through `hooks`.
  static std::vector<float> decoded(Transformer& model, KvCache cache, AttentionHooks* hooks) {
    std::vector<float> all;
    for (const int32_t token : {5, 9, 17}) {
      const SequencePass pass{.tokens = {&token, 1}, .cache = &cache, .hooks = hooks};
      const std::span<const float> logits = model.forward({&pass, 1});
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  Transformer host_;
  KvCache coded_;
};

TEST_F(AttentionPlanTest, AnUnknownFormHasTheBitsOfItsDenseRestatementOnBothSides) {
  Offloaded offloaded;
  SeesEverySecond views;
  for (AttentionHooks* hooks : {static_cast<AttentionHooks*>(nullptr), static_cast<AttentionHooks*>(&views)}) {
    const std::string what = hooks == nullptr ? "everything" : "through an unknown view";
    const std::vector<float> here = decoded(host_, coded_.clone(), hooks);
    EXPECT_EQ(here, decoded(host_, restated(), hooks)) << "on the host, " << what;
    const std::vector<float> there = decoded(offloaded.model(), coded_.clone(), hooks);
    EXPECT_EQ(there, decoded(offloaded.model(), restated(), hooks)) << "on the device, " << what;
    EXPECT_LT(testing::relative_error(there, here), 1e-4) << what;
  }
  EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0);
}

TEST_F(AttentionPlanTest, ProbabilitiesAndNumbersOfAnUnknownFormAreThoseOfItsDenseRestatement) {
  const KvCache dense = restated();
  const LayerCache &a = coded_.layers[0], &b = dense.layers[0];
  const LayerShape& shape = a.shape();
  const int64_t row = shape.q_heads * shape.head_dim, n = kFront + kTail;
  const std::vector<float> q = testing::random_floats(row, "q");
  const LayerQueries queries{.q = q.data(), .q_len = 1, .q_stride = row, .position = n - 1};
  const std::vector<float> lse(static_cast<size_t>(shape.q_heads), 3.0F);
  std::vector<float> got(static_cast<size_t>(shape.q_heads * n)), want(got.size());
  add_probabilities(a.plan(queries), lse.data(), got.data(), n);
  add_probabilities(b.plan(queries), lse.data(), want.data(), n);
  EXPECT_EQ(got, want);
  std::vector<float> keys(static_cast<size_t>(n * shape.head_dim)), values(keys.size());
  std::vector<float> dense_keys(keys.size()), dense_values(keys.size());
  read(a.plan(queries), 1, keys.data(), values.data());
  read(b.plan(queries), 1, dense_keys.data(), dense_values.data());
  EXPECT_EQ(keys, dense_keys);
  EXPECT_EQ(values, dense_values);
}

}  // namespace
}  // namespace kvarena::device
