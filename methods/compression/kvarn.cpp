#include <algorithm>
#include <cmath>

#include "harness/cache/codec_side_data.h"
#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// A number for each token and each channel of a tile: what they are divided by, or how far they deviate.
struct TileScales {
  std::vector<float> token, channel;
};

/// Standard deviations (of n - 1) of the tokens and channels of a tile [tokens, channels] divided by `scales`.
TileScales deviations(const float* tile, const TileScales& scales) {
  const auto n = std::ssize(scales.token), d = std::ssize(scales.channel);
  TileScales result{scales.token, scales.channel};
  std::vector<float> inverse, y(scales.channel.size()), sums(y.size()), squares(y.size());
  for (const float scale : scales.channel) inverse.push_back(1 / scale);
  const auto deviation = [](double sum, double square, int64_t count) {
    const double variance = (square - sum * sum / static_cast<double>(count)) / static_cast<double>(count - 1);
    return static_cast<float>(std::sqrt(std::max(variance, 0.0)));
  };
  for (int64_t t = 0; t < n; ++t, tile += d) {
    const float own = 1 / scales.token[t];
    for (int64_t c = 0; c < d; ++c) {
      y[c] = tile[c] * inverse[c] * own;
      sums[c] += y[c];
      squares[c] += y[c] * y[c];
    }
    double sum = 0, square = 0;
    for (const float x : y) {
      sum += x;
      square += x * x;
    }
    result.token[t] = deviation(sum, square, d);
  }
  for (int64_t c = 0; c < d; ++c) result.channel[c] = deviation(sums[c], squares[c], n);
  return result;
}

/// How far deviations of tokens and of channels are apart; 2 when those of each kind are equal.
float imbalance(const TileScales& deviations) {
  const auto spread = [](const std::vector<float>& all) {
    const auto [low, high] = std::ranges::minmax_element(all);
    return *high / std::max(*low, 1e-8F);
  };
  return spread(deviations.token) + spread(deviations.channel);
}

/// Multiplies scales by deviations, within e^-0.3 and e^10.
void absorb(const std::vector<float>& deviations, std::vector<float>& scales) {
  for (size_t i = 0; i < scales.size(); ++i) {
    const float log_scale = std::log(scales[i]) + std::log(std::clamp(deviations[i], 1e-3F, 1e3F));
    scales[i] = std::exp(std::clamp(log_scale, -0.3F, 10.0F));
  }
}

/// The scales, of those that the rounds pass, under which deviations are most alike. Each round begins with the axis
/// that is not quantised: tokens of keys, channels of values.
TileScales balance(const float* tile, int64_t tokens, int64_t channels, bool keys, int64_t rounds) {
  TileScales scales{std::vector<float>(static_cast<size_t>(tokens), 1.0F),
                    std::vector<float>(static_cast<size_t>(channels), 1.0F)};
  TileScales found = deviations(tile, scales), best = scales;
  float least = imbalance(found);
  const auto first = keys ? &TileScales::token : &TileScales::channel;
  const auto second = keys ? &TileScales::channel : &TileScales::token;
  for (int64_t round = 0; round < rounds; ++round) {
    absorb(found.*first, scales.*first);
    absorb(deviations(tile, scales).*second, scales.*second);
    found = deviations(tile, scales);
    if (const float reached = imbalance(found); reached <= least) {
      least = reached;
      best = scales;
    }
  }
  return best;
}

/// Turns heads, and divides keys by a scale of their token, values by a scale of their channel in a tile; f16 both.
class Balance final : public CodecSideData {
 public:
  Balance(RowTransformPtr rotation, int64_t tile, int64_t rounds, const LedgerPtr& ledger)
      : rotation_(std::move(rotation)),
        tile_(tile),
        rounds_(rounds),
        tokens_(LedgerAllocator<uint16_t>(ledger)),
        channels_(LedgerAllocator<uint16_t>(ledger)) {}
  Balance(const Balance& from, const LedgerPtr& ledger)
      : rotation_(from.rotation_),
        tile_(from.tile_),
        rounds_(from.rounds_),
        heads_(from.heads_),
        width_(from.width_),
        tokens_(from.tokens_, LedgerAllocator<uint16_t>(ledger)),
        channels_(from.channels_, LedgerAllocator<uint16_t>(ledger)) {}

  void prepare(int64_t first, EntryBlock& block) override {
    heads_ = block.kv_heads;
    width_ = block.kv_heads * block.head_dim;
    tokens_.resize(static_cast<size_t>((first + block.count) * heads_));
    channels_.resize(static_cast<size_t>((first + block.count) / tile_ * width_));
    for (int64_t h = 0; h < heads_; ++h) {
      rotation_->apply(h, block.key(h, 0), block.count);
      rotation_->apply(h, block.value(h, 0), block.count);
      for (int64_t i = 0; i < block.count; i += tile_) balance_tile(first, i, h, block);
    }
  }

  [[nodiscard]] DequantProgram dequant_program(const PositionReader& /*positions*/) const override {
    const auto reader = [](const LedgerVector<uint16_t>& scales, int64_t each) {
      return [&scales, each](int64_t first, int64_t count, std::vector<kernels::RowScale>& to) {
        for (int64_t i = first * each; i < (first + count) * each; ++i)
          to.push_back({.factor = kernels::f16_to_f32(scales[i])});
      };
    };
    return {.keys = in_order(ScaleEntries{.read = reader(tokens_, heads_)}, UndoTransform{rotation_}),
            .values = in_order(ScaleTiles{.tile = tile_, .read = reader(channels_, width_)}, UndoTransform{rotation_})};
  }
  [[nodiscard]] int64_t bytes() const override {
    return static_cast<int64_t>((tokens_.capacity() + channels_.capacity()) * sizeof(uint16_t)) + rotation_->bytes();
  }
  [[nodiscard]] std::unique_ptr<CodecSideData> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<Balance>(*this, ledger);
  }

 private:
  void balance_tile(int64_t first, int64_t i, int64_t h, EntryBlock& block) {
    const int64_t d = block.head_dim;
    const auto rounded = [](float scale, uint16_t& stored) {
      stored = kernels::f32_to_f16(scale);
      return kernels::f16_to_f32(stored);
    };
    const TileScales of_keys = balance(block.key(h, i), tile_, d, /*keys=*/true, rounds_);
    const TileScales of_values = balance(block.value(h, i), tile_, d, /*keys=*/false, rounds_);
    std::vector<float> by_channel;
    for (int64_t c = 0; c < d; ++c)
      by_channel.push_back(rounded(of_values.channel[c], channels_[(first + i) / tile_ * width_ + h * d + c]));
    for (int64_t t = 0; t < tile_; ++t) {
      const float by_token = rounded(of_keys.token[t], tokens_[(first + i + t) * heads_ + h]);
      for (int64_t c = 0; c < d; ++c) block.key(h, i + t)[c] /= by_token;
      for (int64_t c = 0; c < d; ++c) block.value(h, i + t)[c] /= by_channel[c];
    }
  }

  RowTransformPtr rotation_;
  int64_t tile_, rounds_;
  int64_t heads_ = 0, width_ = 0;
  LedgerVector<uint16_t> tokens_;    // [entries, kv_heads], f16
  LedgerVector<uint16_t> channels_;  // [tiles, kv_heads * head_dim], f16
};

/// Keys and values rotated by a Hadamard matrix in each head, in tiles of `group` tokens. Tokens and
/// channels of a tile are divided in turns by their standard deviations (the round after which these are most alike
/// counts); then keys are quantised per channel and values per token over the whole tile,
///   lo = min,  s = (max - min) / (2^bits - 1),  code = round((x - lo) / s),  decoded (s code + lo) o
/// where o is the scale of the other axis: the token's of keys, the channel's of values; that of the quantised axis
/// goes into s and lo. All are f16. The first `sinks` tokens and those of the tile that is not full stay in 16 bits.
/// Mueller et al. 2026, arXiv:2606.03458; presets and rounds are those of the authors' code (kvarn_k4v2_g128).
class KVarN final : public Codec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits", bits_).min(1).max(8).doc("bits of a key: 1, 2, 3, 4, 5 or 8");
    p("value_bits", value_bits_).min(1).max(8).doc("bits of a value");
    p("group", group_).min(16).doc("tokens of a tile, a multiple of 16");
    p("iterations", iterations_).min(0).max(64).doc("rounds that even out tokens and channels");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    check_bits(place, "bits", bits_, problems);
    check_bits(place, "value_bits", value_bits_, problems);
    if (group_ % 16 != 0) problems.push_back(place + ".group: expected a multiple of 16");
  }
  std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override {
    const LayerShape& shape = layer.cache.shape();
    const LedgerPtr& ledger = layer.cache.ledger();
    const QuantizedFormat format{
        .keys = {.bits = static_cast<int>(bits_), .group_size = group_, .meta = DType::f16},
        .values = {.bits = static_cast<int>(value_bits_), .group_size = shape.head_dim, .meta = DType::f16}};
    auto balance =
        std::make_unique<Balance>(hadamard_transform(shape.head_dim, std::nullopt), group_, iterations_, ledger);
    return std::make_unique<DequantizingSegment>(shape, format, std::move(balance), ledger);
  }
  int64_t key_block() const override { return group_; }
  int64_t default_sinks() const override { return 128; }

 private:
  int64_t bits_ = 4;
  int64_t value_bits_ = 2;
  int64_t group_ = 128;
  int64_t iterations_ = 8;
};

KVARENA_CODEC(KVarN, {.name = "kvarn",
                      .title = "KVarN",
                      .summary = "Rotates heads and evens out tokens and channels of tiles before it quantises.",
                      .paper = "arXiv:2606.03458"});

}  // namespace
}  // namespace kvarena
