#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/cache/attend_plan.h"
#include "harness/method/codec.h"

namespace kvarena {
namespace {

using Lists = std::vector<std::vector<int32_t>>;  // [kv_heads][...], ascending entry numbers

/// Salient tokens in more bits than the others.  An entry's saliency is the attention it received divided by the number
/// of queries that could see it: plain sums favour early entries.  The `salient` best of each head get bits_salient,
/// the rest bits. Keys are quantised per channel over each class; values per token after division by c_i = sqrt(max_t
/// |x_t,i|), which evens out channels:  lo = min, s = (max - min) / (2^bits - 1). Entries that arrive later wait in 16
/// bits until `gap` of them are sorted and packed in the same way, by the attention they received meanwhile. The
/// authors estimate saliency from a tenth of the queries (the last 5% and a random 5%) to spare explicit attention;
/// here all queries vote, which is what they estimate. Each class is a segment of its own: its c_i and the values'
/// ranges are those of one class and head, theirs are of both classes and of all heads. He et al. 2024,
/// arXiv:2405.14256, section 4.
class ZipCache final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits_salient", bits_salient_).min(1).max(8).doc("bits of salient entries: 1, 2, 3, 4, 5 or 8");
    p("bits", bits_).min(1).max(8).doc("bits of the other entries");
    p("salient", salient_).above(0).max(1).doc("share of entries that are salient, by head");
    p("gap", gap_).min(16).doc("entries that gather in 16 bits while decoding before they are packed");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    check_bits(place, "bits_salient", bits_salient_, problems);
    check_bits(place, "bits", bits_, problems);
  }
  Needs needs() const override { return {.prompt_attention = true, .step_attention = true}; }

  void compress(LayerContext& layer, const LayerObservations& seen) const override {
    const LayerShape& shape = layer.cache.shape();
    const int64_t n = layer.cache.tail().entries(0);
    std::vector<std::vector<float>> saliency(static_cast<size_t>(shape.kv_heads), std::vector<float>(n));
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      for (int64_t i = 0; i < n; ++i) {
        saliency[h / shape.group()][i] += seen.prompt_attention[h * n + i] / static_cast<float>(n - i);
      }
    }
    pack(layer, saliency, n);
  }

  void observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const override {
    EntrySegment& tail = layer.cache.tail();
    const LayerShape& shape = layer.cache.shape();
    tail.reserve_scores(1);
    const int64_t n = tail.entries(0);
    std::vector<float> sums(static_cast<size_t>(shape.q_heads * n));
    add_probabilities(tail.plan_newest(queries), lse, sums.data(), n);
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      const std::span<float> row = tail.entry_scores(h / shape.group());
      for (int64_t i = 0; i < n; ++i) row[i] += sums[h * n + i];
    }
  }

  HookAccess reach() const override { return HookAccess::rows; }
  void after_append(LayerContext& layer) const override {
    EntrySegment& tail = layer.cache.tail();
    while (tail.entries(0) >= gap_) {
      tail.reserve_scores(1);
      const int64_t n = tail.entries(0);
      std::vector<std::vector<float>> saliency;
      for (int64_t h = 0; h < layer.cache.shape().kv_heads; ++h) {
        const std::span<const float> sums = tail.entry_scores(h);
        saliency.emplace_back(sums.begin(), sums.begin() + gap_);
        for (int64_t i = 0; i < gap_; ++i) saliency.back()[i] /= static_cast<float>(n - i);
      }
      pack(layer, saliency, gap_);
    }
  }

 private:
  /// Packs the first n entries of the tail as two segments.
  void pack(LayerContext& layer, const std::vector<std::vector<float>>& saliency, int64_t n) const {
    const LayerShape& shape = layer.cache.shape();
    const auto count = std::clamp<int64_t>(static_cast<int64_t>(salient_ * static_cast<double>(n) + 1e-9), 0, n);
    Lists salient(static_cast<size_t>(shape.kv_heads));
    Lists rest(salient.size());
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      std::vector<int32_t> order(static_cast<size_t>(n));
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, std::ranges::greater{}, [&](int32_t i) { return saliency[h][i]; });
      salient[h].assign(order.begin(), order.begin() + count);
      rest[h].assign(order.begin() + count, order.end());
      std::ranges::sort(salient[h]);
      std::ranges::sort(rest[h]);
    }
    pack_class(layer, salient, bits_salient_);
    pack_class(layer, rest, bits_);
    layer.cache.tail().drop_front(n);
    layer.activity.entries_packed += n * shape.kv_heads;
  }

  static void pack_class(LayerContext& layer, const Lists& members, int64_t bits) {
    const auto n = static_cast<int64_t>(members[0].size());
    if (n == 0) return;
    const LayerShape& shape = layer.cache.shape();
    const LedgerPtr& ledger = layer.cache.ledger();
    const auto scratch = std::make_shared<MemoryLedger>();
    const std::unique_ptr<Segment> copy = layer.cache.tail().clone(scratch);
    auto& entries = static_cast<EntrySegment&>(*copy);
    entries.keep(members);

    const int64_t d = shape.head_dim;
    QuantizedFormat format;
    format.keys = {.bits = static_cast<int>(bits),
                   .group_size = kernels::kWholeRun,
                   .meta = meta_type(shape),
                   .rule = kernels::QuantRule::given};
    format.values = {.bits = static_cast<int>(bits), .group_size = d, .meta = meta_type(shape)};
    const auto steps = static_cast<float>((1 << bits) - 1);
    std::vector<float> factors;  // [kv_heads, head_dim]
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      std::vector<float> keys(static_cast<size_t>(n * d));
      std::vector<float> values(keys.size());
      entries.read(h, keys.data(), values.data());
      require_finite(keys, "key", h);
      require_finite(values, "value", h);
      for (int64_t c = 0; c < d; ++c) {
        float low = keys[c];
        float high = keys[c];
        float largest = 0;
        for (int64_t i = 0; i < n; ++i) {
          low = std::min(low, keys[i * d + c]);
          high = std::max(high, keys[i * d + c]);
          largest = std::max(largest, std::fabs(values[i * d + c]));
        }
        format.key_zero.push_back(low);
        format.key_scale.push_back((high - low) / steps);
        factors.push_back(largest > 0 ? std::sqrt(largest) : 1.0F);
      }
    }
    format.value_transform = channel_scaling(d, factors, ledger);
    auto packed = std::make_unique<QuantizedSegment>(shape, format, ledger);
    packed->take(entries, n);
    layer.cache.insert_packed(std::move(packed));
  }

  int64_t bits_salient_ = 4;
  int64_t bits_ = 2;
  double salient_ = 0.6;
  int64_t gap_ = 100;
};

KVARENA_METHOD(ZipCache, Family::compression,
               {.name = "zipcache",
                .title = "ZipCache",
                .summary = "Salient entries in 4 bits, the others in 2.",
                .paper = "arXiv:2405.14256, section 4"});

}  // namespace
}  // namespace kvarena
