#include <fmt/format.h>

#include "harness/core/error.h"
#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// Asymmetric quantisation, keys per channel along tokens, values per token along channels.  Of each group
///   lo = min x,  s = (max x - lo) / (2^bits - 1),  code = round((x - lo) / s),  decoded s code + lo,
/// s and lo in 16 bits. The newest T mod R keys and exactly the last R values stay in 16 bits, R = residual_length.
/// With one bit, zero_point "midpoint" reconstructs the midpoints of the halves of the range instead of its ends
/// (SpeCache's improvement, arXiv:2503.16163, section 3.4: lo = (3 min + max) / 4, s = (max - min) / 2).
/// Liu et al. 2024, arXiv:2402.02750, section 4; defaults are the paper's (group 32, residual 128).
class Kivi final : public QuantizingCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits", bits_).min(1).max(8).doc("bits of a key or value: 1, 2, 3, 4, 5 or 8");
    p("value_bits", value_bits_).min(1).max(8).doc("bits of values where they differ from those of keys");
    p("group_size", group_size_).min(16).doc("elements that share a scale and a zero point, a multiple of 16");
    p("residual_length", residual_length_).min(16).doc("newest entries in 16 bits; keys leave in blocks of it");
    p("zero_point", zero_point_).one_of({"auto", "minimum", "midpoint"}).doc("auto: midpoint for 1 bit, else minimum");
  }

  void check(const std::string& place, std::vector<std::string>& problems) const override {
    check_bits(place, "bits", bits_, problems);
    if (value_bits_) check_bits(place, "value_bits", *value_bits_, problems);
    if (group_size_ % 16 != 0) problems.push_back(place + ".group_size: expected a multiple of 16");
    if (residual_length_ % group_size_ != 0) {
      problems.push_back(describe({.place = place + ".residual_length",
                                   .found = fmt::format("{}", residual_length_),
                                   .expected = fmt::format("a multiple of group_size {}", group_size_)}));
    }
    if (zero_point_ == "midpoint" && (bits_ != 1 || value_bits_.value_or(1) != 1)) {
      problems.push_back(place + ".zero_point: found \"midpoint\", which is for 1 bit alone");
    }
  }

  QuantizedFormat format(const LayerContext& layer) const override {
    const LayerShape& shape = layer.cache.shape();
    return {.keys = side(bits_, shape), .values = side(value_bits_.value_or(bits_), shape)};
  }
  bool storable() const override { return true; }
  int64_t key_block() const override { return residual_length_; }
  int64_t value_residual() const override { return residual_length_; }

 private:
  [[nodiscard]] kernels::QuantFormat side(int64_t bits, const LayerShape& shape) const {
    const bool midpoint = zero_point_ == "midpoint" || (zero_point_ == "auto" && bits == 1);
    return {.bits = static_cast<int>(bits),
            .group_size = group_size_,
            .meta = meta_type(shape),
            .rule = midpoint ? kernels::QuantRule::midpoint : kernels::QuantRule::minimum};
  }

  int64_t bits_ = 2;
  std::optional<int64_t> value_bits_;
  int64_t group_size_ = 32;
  int64_t residual_length_ = 128;
  std::string zero_point_ = "auto";
};

KVARENA_CODEC(Kivi, {.name = "kivi",
                     .title = "KIVI",
                     .summary = "Quantises keys per channel and values per token, the newest entries excepted.",
                     .paper = "arXiv:2402.02750, section 4"});

}  // namespace
}  // namespace kvarena
