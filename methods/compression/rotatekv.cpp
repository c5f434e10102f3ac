#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/cache/codec_side_data.h"
#include "harness/method/codec.h"
#include "kernels/hadamard/hadamard.h"

namespace kvarena {
namespace {

/// Keys before their rotary rotation, channels of a few heads put in order and rotated together; values rotated in each
/// head.
class Rotated final : public StorableSideData {
 public:
  /// order [kv_heads * head_dim]: for each group of heads, the channels (within the group) in the order they are
  /// rotated in.
  Rotated(const LayerShape& shape, const RotaryKeys& rotary, int64_t head_group, std::vector<uint16_t> order,
          const LedgerPtr& ledger)
      : rotary_(rotary),
        width_(head_group * shape.head_dim),
        value_hadamard_(hadamard_transform(shape.head_dim, std::nullopt)),
        order_(order.begin(), order.end(), LedgerAllocator<uint16_t>(ledger)) {}
  Rotated(const Rotated& from, const LedgerPtr& ledger)
      : rotary_(from.rotary_),
        width_(from.width_),
        value_hadamard_(from.value_hadamard_),
        order_(from.order_, LedgerAllocator<uint16_t>(ledger)) {}

  void prepare(int64_t /*first*/, EntryBlock& block) override {
    const int64_t d = block.head_dim;
    for (int64_t h = 0; h < block.kv_heads; ++h) {
      rotary_.undo(block.key(h, 0), block.positions[h]);
      value_hadamard_->apply(h, block.value(h, 0), block.count);
    }
    std::vector<float> row(static_cast<size_t>(width_));
    for (int64_t base = 0; base < block.kv_heads * d; base += width_) {
      for (int64_t i = 0; i < block.count; ++i) {
        const auto channel = [&](int64_t c) -> float& { return block.key((base + c) / d, i)[(base + c) % d]; };
        for (int64_t k = 0; k < width_; ++k) row[k] = channel(order_[base + k]);
        rotate(row.data(), 1);
        for (int64_t k = 0; k < width_; ++k) channel(k) = row[k];
      }
    }
  }

  [[nodiscard]] DequantProgram dequant_program(const PositionReader& positions) const override {
    const auto back = [this] {
      std::vector<int32_t> places;
      for (size_t c = 0; c < order_.size(); ++c) {
        const int64_t base = static_cast<int64_t>(c) / width_ * width_;
        places.push_back(static_cast<int32_t>(base + order_[c]));
      }
      return places;
    };
    DequantProgram steps{.keys = in_order(HadamardBlocks{run_of(width_)}, PermuteChannels{.read = back}),
                         .values = in_order(UndoTransform{value_hadamard_})};
    rotary_.add_dequant_op(positions, steps.keys);
    return steps;
  }

  [[nodiscard]] int64_t bytes() const override { return static_cast<int64_t>(2 * order_.capacity()); }
  [[nodiscard]] std::unique_ptr<CodecSideData> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<Rotated>(*this, ledger);
  }
  void save(CacheWriter& to) const override { to.put_all(std::span<const uint16_t>(order_)); }
  void load(CacheReader& from, int64_t /*entries*/) override {
    from.get_all(std::span<uint16_t>(order_));
    const bool all_there = std::ranges::all_of(order_, [&](uint16_t channel) { return channel < width_; });
    if (!all_there) CacheReader::damaged("a channel of another group", fmt::format("one of {}", width_));
  }

 private:
  /// The largest power of two that divides a width.
  static int64_t run_of(int64_t width) { return width & -width; }
  /// The group's Hadamard matrix on rows [count, width_], in runs where the width is no power of two.
  void rotate(float* rows, int64_t count) const {
    const int64_t run = run_of(width_);
    kernels::hadamard(rows, count * (width_ / run), run, run);
  }

  RotaryKeys rotary_;
  int64_t width_;  // of a group of heads
  RowTransformPtr value_hadamard_;
  LedgerVector<uint16_t> order_;
};

/// Keys rotated before their rotary embedding, several heads together, with channels of like size side by side.
/// 1. undo RoPE;  2. of each head_group kv heads put the channels in the order of their summed magnitude;  3. multiply
/// by the group's Hadamard matrix;  4. per token and `group_size` channels  s = clip (max - min) / (2^bits - 1),
/// z = round(-min / s),  code = round(x / s) + z.  Values: a Hadamard matrix in each head, then 4.  Tokens that own the
/// largest activations of the layer's input stay in 16 bits (attention sinks).
/// The authors calibrate the order offline and simulate the storage; here the prompt's own keys give the order, which
/// is counted, and codes are packed. Heads are grouped by the largest power of two that divides their number, at most
/// head_group; groups of channels do not cross heads.
/// Su et al. 2025, arXiv:2501.16383, sections 3.2 to 3.4; their code's level count at 3 bits (8 for 7) is not copied.
class RotateKv final : public Codec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits", bits_).min(2).max(8).doc("bits of a key or value: 2, 3, 4, 5 or 8");
    p("head_group", head_group_).min(1).doc("kv heads whose keys are rotated together");
    p("group_size", group_size_).min(16).doc("channels that share a scale, at most a head");
    p("clip", clip_).above(0).max(1).doc("factor on minimum and maximum; 0.8 at 2 bits and 1 above when not given");
    p("massive", massive_).min(0).doc("largest activations of the layer's input whose tokens stay in 16 bits");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    check_bits(place, "bits", bits_, problems);
    if (group_size_ % 16 != 0) problems.push_back(place + ".group_size: expected a multiple of 16");
  }
  Needs needs() const override { return {.hidden = massive_ > 0}; }
  bool storable() const override { return true; }
  std::string check_layer(const LayerContext& layer) const override {
    const int64_t d = layer.cache.shape().head_dim;
    return group_size_problem(std::min(group_size_, d), d);
  }

  std::vector<int32_t> exempt(const LayerContext& /*layer*/, const LayerObservations& seen) const override {
    if (seen.hidden.empty() || massive_ == 0) return {};
    const size_t width = seen.hidden.size() / static_cast<size_t>(seen.entries);
    std::vector<size_t> order(seen.hidden.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const size_t largest = std::min(order.size(), static_cast<size_t>(massive_));
    std::ranges::partial_sort(order, order.begin() + static_cast<int64_t>(largest), [&](size_t a, size_t b) {
      const float x = std::fabs(seen.hidden[a]);
      const float y = std::fabs(seen.hidden[b]);
      return x != y ? x > y : a < b;
    });
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < largest; ++i) tokens.push_back(static_cast<int32_t>(order[i] / width));
    std::ranges::sort(tokens);
    tokens.erase(std::ranges::unique(tokens).begin(), tokens.end());
    return tokens;
  }

  std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override {
    const LayerShape& shape = layer.cache.shape();
    const kernels::QuantFormat side{.bits = static_cast<int>(bits_),
                                    .group_size = std::min(group_size_, shape.head_dim),
                                    .meta = DType::f16,
                                    .rule = kernels::QuantRule::whole_zero,
                                    .token_groups = true,
                                    .clip = static_cast<float>(clip_.value_or(bits_ == 2 ? 0.8 : 1.0))};
    const int64_t heads = std::min(head_group_, shape.kv_heads & -shape.kv_heads);
    auto parts =
        std::make_unique<Rotated>(shape, rotary_keys(layer), heads, channel_order(layer, heads), layer.cache.ledger());
    return std::make_unique<DequantizingSegment>(shape, QuantizedFormat{.keys = side, .values = side}, std::move(parts),
                                                 layer.cache.ledger());
  }

 private:
  /// Channels of each group of heads by summed magnitude of the prompt's keys before rotation, largest first.
  static std::vector<uint16_t> channel_order(const LayerContext& layer, int64_t heads) {
    const LayerShape& shape = layer.cache.shape();
    const EntrySegment& tail = layer.cache.tail();
    const RotaryKeys rotary = rotary_keys(layer);
    const int64_t d = shape.head_dim;
    std::vector<double> magnitude(static_cast<size_t>(shape.kv_heads * d));
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      std::vector<float> keys(static_cast<size_t>(tail.entries(h) * d));
      tail.read(h, keys.data(), nullptr);
      rotary.undo(keys.data(), tail.positions(h));
      for (size_t i = 0; i < keys.size(); ++i) {
        magnitude[h * d + static_cast<int64_t>(i) % d] += std::isfinite(keys[i]) ? std::fabs(keys[i]) : 0;
      }
    }
    std::vector<uint16_t> order(magnitude.size());
    const int64_t width = heads * d;
    for (int64_t base = 0; base < shape.kv_heads * d; base += width) {
      const auto group = std::span(order).subspan(static_cast<size_t>(base), static_cast<size_t>(width));
      std::iota(group.begin(), group.end(), uint16_t{0});
      std::ranges::stable_sort(group, std::ranges::greater{}, [&](uint16_t c) { return magnitude[base + c]; });
    }
    return order;
  }

  int64_t bits_ = 2;
  int64_t head_group_ = 4;
  int64_t group_size_ = 128;
  std::optional<double> clip_;
  int64_t massive_ = 20;
};

KVARENA_CODEC(RotateKv, {.name = "rotatekv",
                         .title = "RotateKV",
                         .summary = "Rotates keys before RoPE, several heads together, and quantises per token.",
                         .paper = "arXiv:2501.16383, section 3"});

}  // namespace
}  // namespace kvarena
