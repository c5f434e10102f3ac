#include <algorithm>
#include <cmath>

#include "harness/cache/codec_side_data.h"
#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// Turns heads by `rotation`, and keeps what keys are divided by: the length of a token's keys over all heads, in f16.
class TokenLengths final : public CodecSideData {
 public:
  TokenLengths(RowTransformPtr rotation, const LedgerPtr& ledger)
      : rotation_(std::move(rotation)), lengths_(LedgerAllocator<uint16_t>(ledger)) {}
  TokenLengths(const TokenLengths& from, const LedgerPtr& ledger)
      : rotation_(from.rotation_), lengths_(from.lengths_, LedgerAllocator<uint16_t>(ledger)) {}

  void prepare(int64_t /*first*/, EntryBlock& block) override {
    for (int64_t h = 0; h < block.kv_heads; ++h) {
      rotation_->apply(h, block.key(h, 0), block.count);
      rotation_->apply(h, block.value(h, 0), block.count);
    }
    lengths_.reserve(lengths_.size() + static_cast<size_t>(block.count));
    for (int64_t i = 0; i < block.count; ++i) {
      double squares = 0;
      for (int64_t h = 0; h < block.kv_heads; ++h) {
        for (int64_t c = 0; c < block.head_dim; ++c) squares += std::pow(block.key(h, i)[c], 2);
      }
      lengths_.push_back(kernels::f32_to_f16(static_cast<float>(std::sqrt(std::max(squares, 1e-8)))));
      const float length = kernels::f16_to_f32(lengths_.back());
      for (int64_t h = 0; h < block.kv_heads; ++h) {
        for (int64_t c = 0; c < block.head_dim; ++c) block.key(h, i)[c] /= length;
      }
    }
  }

  [[nodiscard]] DequantProgram dequant_program(const PositionReader& /*positions*/) const override {
    const auto read = [this](int64_t first, int64_t count, std::vector<kernels::RowScale>& to) {
      for (int64_t i = first; i < first + count; ++i) to.push_back({.factor = kernels::f16_to_f32(lengths_[i])});
    };
    return {.keys = in_order(ScaleEntries{.shared = true, .read = read}, UndoTransform{rotation_}),
            .values = in_order(UndoTransform{rotation_})};
  }
  [[nodiscard]] int64_t bytes() const override {
    return static_cast<int64_t>(lengths_.capacity() * sizeof(uint16_t)) + rotation_->bytes();
  }
  [[nodiscard]] std::unique_ptr<CodecSideData> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<TokenLengths>(*this, ledger);
  }

 private:
  RowTransformPtr rotation_;
  LedgerVector<uint16_t> lengths_;  // [entries], f16
};

/// Keys and values rotated by a Hadamard matrix in each head; keys are then divided by their token's length over all
/// heads, |k_t|, so that no token sets the range of a channel. Keys per channel along tokens, values per token along
/// channels, in groups:
///   s = (max - min) / (2^bits - 1),  z = round(-min / s),  code = round(x / s) + z,  decoded s (code - z)
/// with s and -s z in 16 bits, |k_t| in f16. Entries wait in 16 bits until residual_length of them make a block.
/// Su et al. 2026, arXiv:2605.19660; defaults are those of the authors' code.
class Oscar final : public Codec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits", bits_).min(1).max(8).doc("bits of a key or value: 1, 2, 3, 4, 5 or 8");
    p("group_size", group_size_).min(16).doc("elements that share a scale; for values at most a head");
    p("residual_length", residual_length_).min(16).doc("newest entries in 16 bits, packed in blocks of this many");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    check_bits(place, "bits", bits_, problems);
    if (group_size_ % 16 != 0) problems.push_back(place + ".group_size: expected a multiple of 16");
    if (residual_length_ % group_size_ != 0) {
      problems.push_back(place + ".residual_length: expected a multiple of group_size");
    }
  }
  std::string check_layer(const LayerContext& layer) const override {
    const int64_t d = layer.cache.shape().head_dim;
    return group_size_problem(std::min(group_size_, d), d);
  }
  std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override {
    const LayerShape& shape = layer.cache.shape();
    const kernels::QuantFormat keys{.bits = static_cast<int>(bits_),
                                    .group_size = group_size_,
                                    .meta = meta_type(shape),
                                    .rule = kernels::QuantRule::whole_zero};
    kernels::QuantFormat values = keys;
    values.group_size = std::min(group_size_, shape.head_dim);
    const LedgerPtr& ledger = layer.cache.ledger();
    auto lengths = std::make_unique<TokenLengths>(hadamard_transform(shape.head_dim, std::nullopt), ledger);
    return std::make_unique<DequantizingSegment>(shape, QuantizedFormat{.keys = keys, .values = values},
                                                 std::move(lengths), ledger);
  }
  int64_t key_block() const override { return residual_length_; }

 private:
  int64_t bits_ = 2;
  int64_t group_size_ = 32;
  int64_t residual_length_ = 128;
};

KVARENA_CODEC(Oscar, {.name = "oscar",
                      .title = "OScaR",
                      .summary = "Rotates heads, evens out keys' lengths, and quantises keys per channel.",
                      .paper = "arXiv:2605.19660"});

}  // namespace
}  // namespace kvarena
