#include <algorithm>
#include <cmath>
#include <numbers>

#include "harness/cache/codec_side_data.h"
#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// Turns pairs of a key's channels, c and c + head_dim / 2, to length and angle; holds nothing.
class PolarKeys final : public CodecSideData {
 public:
  void prepare(int64_t /*first*/, EntryBlock& block) override {
    const int64_t half = block.head_dim / 2;
    for (float* x = block.keys.data(); x != block.keys.data() + block.keys.size(); x += block.head_dim) {
      for (int64_t c = 0; c < half; ++c) {
        const float angle = std::atan2(x[c + half], x[c]);
        x[c] = std::hypot(x[c], x[c + half]);
        x[c + half] = angle < 0 ? angle + 2 * std::numbers::pi_v<float> : angle;
      }
    }
  }
  [[nodiscard]] DequantProgram dequant_program(const PositionReader& /*positions*/) const override {
    return {.keys = in_order(FromPolar{}), .values = {}};
  }
  [[nodiscard]] int64_t bytes() const override { return 0; }
  [[nodiscard]] std::unique_ptr<CodecSideData> clone(const LedgerPtr& /*ledger*/) const override {
    return std::make_unique<PolarKeys>();
  }
};

/// Keys in polar coordinates: of each pair of channels that rotary embedding turns together, the length and the angle
/// (0 to 2 pi) are quantised along `group_size` tokens to the middles of 2^bits equal parts of their range,
///   s = (max - min) / 2^bits,  code = floor((x - min) / s),  decoded min + s (code + 1/2)
/// with s and min + s / 2 in 16 bits. Values are quantised per token, lo = min, s = (max - min) / (2^value_bits - 1).
/// Entries wait in 16 bits until a group is full. The authors keep values in 16 bits for most of their tables; here
/// they are always quantised, as in their mixed form. Wu et al. 2025, arXiv:2502.00527, section 3; defaults are those
/// of the authors' code.
class PolarQuant final : public Codec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits", bits_).min(1).max(8).doc("bits of a length and of an angle: 1, 2, 3, 4, 5 or 8");
    p("value_bits", value_bits_).min(1).max(8).doc("bits of a value");
    p("group_size", group_size_).min(16).doc("tokens that share a scale of keys; channels of values, at most a head");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    check_bits(place, "bits", bits_, problems);
    check_bits(place, "value_bits", value_bits_, problems);
    if (group_size_ % 16 != 0) problems.push_back(place + ".group_size: expected a multiple of 16");
  }
  std::string check_layer(const LayerContext& layer) const override {
    const int64_t d = layer.cache.shape().head_dim;
    return group_size_problem(std::min(group_size_, d), d);
  }
  std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override {
    const LayerShape& shape = layer.cache.shape();
    const QuantizedFormat format{.keys = {.bits = static_cast<int>(bits_),
                                          .group_size = group_size_,
                                          .meta = meta_type(shape),
                                          .rule = kernels::QuantRule::midpoint},
                                 .values = {.bits = static_cast<int>(value_bits_),
                                            .group_size = std::min(group_size_, shape.head_dim),
                                            .meta = meta_type(shape)}};
    return std::make_unique<DequantizingSegment>(shape, format, std::make_unique<PolarKeys>(), layer.cache.ledger());
  }
  int64_t key_block() const override { return group_size_; }

 private:
  int64_t bits_ = 4;
  int64_t value_bits_ = 4;
  int64_t group_size_ = 128;
};

KVARENA_CODEC(PolarQuant, {.name = "polarquant",
                           .title = "PolarQuant",
                           .summary = "Quantises lengths and angles of the pairs of channels of keys.",
                           .paper = "arXiv:2502.00527, section 3"});

}  // namespace
}  // namespace kvarena
