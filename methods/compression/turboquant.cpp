#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numbers>

#include "harness/cache/codec_side_data.h"
#include "harness/core/normal_draws.h"
#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// Levels of the optimal scalar quantiser of a standard normal variable (Lloyd 1982, Max 1960), positive halves. Those
/// of `bits` are the last 2^(bits-1) of the first 2^bits - 1.
constexpr std::array<float, 31> kPositive = {
    0.797885F,                                                                               // 1 bit
    0.452780F, 1.510418F,                                                                    // 2
    0.245094F, 0.756005F, 1.343909F, 2.151946F,                                              // 3
    0.128395F, 0.388048F, 0.656759F, 0.942340F, 1.256231F, 1.618046F, 2.069017F, 2.732590F,  // 4
    0.065890F, 0.198052F, 0.331378F, 0.466699F, 0.604934F, 0.747136F, 0.894565F, 1.048783F,  // 5
    1.211804F, 1.386340F, 1.576228F, 1.787233F, 2.028728F, 2.317739F, 2.691119F, 3.260732F};

/// [2^bits], ascending.
const float* normal_levels(int64_t bits) {
  static const std::array<float, 62> all = [] {
    std::array<float, 62> levels{};
    for (size_t half = 1; half <= 16; half *= 2) {
      for (size_t i = 0; i < half; ++i) {
        const float level = kPositive[half - 1 + i];
        levels[2 * half - 2 + half + i] = level;
        levels[2 * half - 2 + half - 1 - i] = -level;
      }
    }
    return levels;
  }();
  return all.data() + (1 << bits) - 2;
}

/// The residual sketch of keys: r = y - y^ of each rotated key is kept as the signs of S r, S a fixed Gaussian matrix,
/// and its length. Decoded y^ + sqrt(pi / 2) / d |r| S^t sign(S r), whose dot product with any query is unbiased.
class Sketch final : public CodecSideData {
 public:
  Sketch(const LayerShape& shape, RowTransformPtr rotation, RowTransformPtr value_rotation, uint64_t seed,
         const LedgerPtr& ledger)
      : rotation_(std::move(rotation)),
        value_rotation_(std::move(value_rotation)),
        projection_(gaussian(shape.head_dim, seed)),
        signs_(LedgerAllocator<uint16_t>(ledger)),
        lengths_(LedgerAllocator<uint16_t>(ledger)) {}
  Sketch(const Sketch& from, const LedgerPtr& ledger)
      : rotation_(from.rotation_),
        value_rotation_(from.value_rotation_),
        projection_(from.projection_),
        signs_(from.signs_, LedgerAllocator<uint16_t>(ledger)),
        lengths_(from.lengths_, LedgerAllocator<uint16_t>(ledger)) {}

  void prepare(int64_t /*first*/, EntryBlock& block) override {
    for (int64_t h = 0; h < block.kv_heads; ++h) {
      rotation_->apply(h, block.key(h, 0), block.count);
      if (value_rotation_) value_rotation_->apply(h, block.value(h, 0), block.count);
    }
  }

  void complete(int64_t /*first*/, const EntryBlock& prepared, const std::function<EntryBlock()>& decode) override {
    const EntryBlock decoded = decode();
    const int64_t d = prepared.head_dim;
    if (prepared.count > 1) {  // a prompt takes exactly its bytes
      signs_.reserve(signs_.size() + static_cast<size_t>(prepared.count * prepared.kv_heads * d / 16));
      lengths_.reserve(lengths_.size() + static_cast<size_t>(prepared.count * prepared.kv_heads));
    }
    std::vector<float> residual(static_cast<size_t>(d));
    for (int64_t i = 0; i < prepared.count; ++i) {
      for (int64_t h = 0; h < prepared.kv_heads; ++h) {
        double squares = 0;
        for (int64_t c = 0; c < d; ++c) {
          residual[c] = prepared.key(h, i)[c] - decoded.key(h, i)[c];
          squares += static_cast<double>(residual[c]) * residual[c];
        }
        for (int64_t row = 0; row < d; row += 16) {
          uint16_t word = 0;
          for (int64_t bit = 0; bit < 16; ++bit) {
            float dot = 0;
            for (int64_t c = 0; c < d; ++c) dot += (*projection_)[(row + bit) * d + c] * residual[c];
            word = static_cast<uint16_t>(word | (dot < 0 ? 1 : 0) << bit);
          }
          signs_.push_back(word);
        }
        lengths_.push_back(kernels::f32_to_f16(static_cast<float>(std::sqrt(squares))));
      }
    }
  }

  [[nodiscard]] DequantProgram dequant_program(const PositionReader& /*positions*/) const override {
    const AddSketch sketch{.signs = signs_, .lengths = lengths_, .matrix = projection_, .factor = factor()};
    DequantProgram steps{.keys = in_order(sketch, UndoTransform{rotation_}), .values = {}};
    if (value_rotation_) steps.values.emplace_back(UndoTransform{value_rotation_});
    return steps;
  }

  [[nodiscard]] int64_t bytes() const override {
    return static_cast<int64_t>(sizeof(uint16_t) * (signs_.capacity() + lengths_.capacity()));
  }
  [[nodiscard]] std::unique_ptr<CodecSideData> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<Sketch>(*this, ledger);
  }

 private:
  /// On lengths: sqrt(pi / 2) / head_dim.
  [[nodiscard]] float factor() const {
    return std::sqrt(std::numbers::pi_v<float> / 2) / std::sqrt(static_cast<float>(projection_->size()));
  }
  static std::shared_ptr<const std::vector<float>> gaussian(int64_t d, uint64_t seed) {
    return std::make_shared<std::vector<float>>(draw_normal(d * d, RandomStream(seed, "turboquant sketch")));
  }

  RowTransformPtr rotation_;
  RowTransformPtr value_rotation_;                        // null: values are not rotated
  std::shared_ptr<const std::vector<float>> projection_;  // [d, d], follows from the seed, shared by clones
  LedgerVector<uint16_t> signs_;                          // [entries, kv_heads, d / 16], a set bit is minus
  LedgerVector<uint16_t> lengths_;                        // [entries, kv_heads], f16
};

/// A random rotation makes the coordinates of any vector look normal; each is then rounded to the nearest level of the
/// quantiser that is optimal for a normal variable.
///   n = |x|,  y = R x / n,  code_i = nearest level to sqrt(d) y_i,  decoded n R^t y^,
/// with n in 16 bits for each token and head. norm_correction rescales the decoded vector to length n, which the levels
/// shrink (folded into the stored n). Keys stay rotated: queries are rotated instead. value_mode "uniform" keeps values
/// as inference engines do: not rotated, a minimum and a step a token and head. bits 8 leaves keys as they are, in
/// e4m3. vLLM's presets have rotation "hadamard", value_mode "uniform" and skip_boundary_layers 2, and by name k8v4:
/// bits 8, value_bits 4; 4bit_nc: 4, 4; k3v4_nc: 3, 4; 3bit_nc: 3, 3.
/// variant "prod" spends one of a key's bits on a sketch of the residual, which makes scores unbiased but noisier
/// (inference engines leave it out); levels then keep their shrinkage.
/// Zandieh et al. 2026, arXiv:2504.19874, sections 3.1 and 4.3.
class TurboQuant final : public QuantizingCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits", bits_).min(1).max(8).doc("bits of a key's coordinate, 1 to 5; 8: a float of 8 bits, not rotated");
    p("value_bits", value_bits_).min(1).max(5).doc("bits of a value's coordinate");
    p("rotation", rotation_)
        .one_of({"hadamard_signs", "hadamard", "qr"})
        .doc("random signs then Hadamard, Hadamard alone, or a uniformly drawn rotation");
    p("seed", seed_).min(0).doc("of the rotation");
    p("variant", variant_)
        .one_of({"mse", "prod"})
        .doc("prod: bits - 1 for a key's coordinate and a sketch of the rest");
    p("norm_correction", norm_correction_).doc("whether decoded vectors keep their length");
    p("value_mode", value_mode_).one_of({"lloyd", "uniform"}).doc("how values are stored");
    p("skip_boundary_layers", skip_boundary_layers_).min(0).doc("first and last layers that stay in 16 bits");
  }

  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (bits_ == 6 || bits_ == 7)
      problems.push_back(fmt::format("{}.bits: found {}, expected 1 to 5, or 8", place, bits_));
    if (variant_ == "prod" && (bits_ < 2 || bits_ > 5)) {
      problems.push_back(fmt::format("{}.bits: found {}, but variant \"prod\" needs 2 to 5", place, bits_));
    }
  }

  std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override {
    if (variant_ == "mse") return QuantizingCodec::make_segment(layer);
    const LayerShape& shape = layer.cache.shape();
    QuantizedFormat codes = format(layer);
    codes.keys = lloyd(bits_ - 1, shape.head_dim);
    codes.keys.rule = kernels::QuantRule::plain_norm;
    auto sketch = std::make_unique<Sketch>(shape, codes.key_transform, codes.value_transform,
                                           static_cast<uint64_t>(seed_), layer.cache.ledger());
    codes.key_transform = nullptr;
    codes.value_transform = nullptr;
    return std::make_unique<DequantizingSegment>(shape, codes, std::move(sketch), layer.cache.ledger());
  }

  QuantizedFormat format(const LayerContext& layer) const override {
    const int64_t head_dim = layer.cache.shape().head_dim;
    const RowTransformPtr rotation = make_rotation(head_dim);
    QuantizedFormat format;
    if (bits_ == 8) {
      format.keys = {.bits = 8,
                     .group_size = head_dim,
                     .rule = kernels::QuantRule::none,
                     .levels = kernels::Levels::e4m3,
                     .token_groups = true};
    } else {
      format.keys = lloyd(bits_, head_dim);
      format.key_transform = rotation;
    }
    if (value_mode_ == "lloyd") {
      format.values = lloyd(value_bits_, head_dim);
      format.value_transform = rotation;
    } else {
      format.values = {.bits = static_cast<int>(value_bits_), .group_size = head_dim, .meta = DType::f16};
    }
    return format;
  }
  bool packs(const LayerContext& layer) const override {
    return layer.layer >= skip_boundary_layers_ && layer.layer < layer.layers - skip_boundary_layers_;
  }

 private:
  [[nodiscard]] kernels::QuantFormat lloyd(int64_t bits, int64_t head_dim) const {
    return {.bits = static_cast<int>(bits),
            .group_size = head_dim,
            .meta = DType::f16,
            .rule = norm_correction_ ? kernels::QuantRule::norm : kernels::QuantRule::plain_norm,
            .levels = kernels::Levels::codebook,
            .codebook = normal_levels(bits),
            .token_groups = true};
  }
  [[nodiscard]] RowTransformPtr make_rotation(int64_t head_dim) const {
    const auto seed = static_cast<uint64_t>(seed_);
    if (rotation_ == "qr") return random_rotation(head_dim, seed);
    return hadamard_transform(head_dim, rotation_ == "hadamard" ? std::nullopt : std::optional<uint64_t>(seed));
  }

  int64_t bits_ = 4;
  int64_t value_bits_ = 3;
  std::string rotation_ = "hadamard_signs";
  int64_t seed_ = 42;
  std::string variant_ = "mse";
  bool norm_correction_ = true;
  std::string value_mode_ = "lloyd";
  int64_t skip_boundary_layers_ = 0;
};

KVARENA_CODEC(TurboQuant, {.name = "turboquant",
                           .title = "TurboQuant",
                           .summary = "Rotates at random and rounds each coordinate to optimal levels.",
                           .paper = "arXiv:2504.19874, sections 3.1 and 4.3"});

}  // namespace
}  // namespace kvarena
