#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// Each layer has its own bits for keys and for values; sensitive layers get more.  base "kivi": keys per channel along
/// tokens, values per token, in groups of group_size with minima (as the method kivi). base "per_token": both per token
/// and head with a whole zero point,
///   s = (max x - min x) / (2^bits - 1),  z = round(-min x / s),  code = round(x / s) + z,
/// without a window. Lists name the bits of layer 0, 1, ...; a single number is for all layers, and 16 leaves a side's
/// layer as it is when both sides say so. Which bits suit a model is found by search and written into the config.
/// Li et al. 2025, arXiv:2502.04420, sections 4 and 5.
class KvTuner final : public QuantizingCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("base", base_).one_of({"kivi", "per_token"}).doc("how a layer is quantised");
    p("bits", bits_).doc("bits of keys, one number a layer or one for all: 1, 2, 3, 4, 5, 8 or 16");
    p("value_bits", value_bits_).doc("bits of values, likewise; as bits when empty");
    p("group_size", group_size_).min(16).doc("elements that share a scale and a zero point; base kivi");
    p("residual_length", residual_length_).min(16).doc("newest entries in 16 bits; base kivi");
  }

  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (bits_.empty()) problems.push_back(place + ".bits: found no number, expected one or one a layer");
    for (const int64_t bits : bits_) check_side(place, "bits", bits, problems);
    for (const int64_t bits : value_bits_) check_side(place, "value_bits", bits, problems);
    if (group_size_ % 16 != 0) problems.push_back(place + ".group_size: expected a multiple of 16");
    if (residual_length_ % group_size_ != 0) {
      problems.push_back(place + ".residual_length: expected a multiple of group_size");
    }
  }

  std::string check_layer(const LayerContext& layer) const override {
    for (const auto& [key, list] : {std::pair{"bits", &bits_}, std::pair{"value_bits", &value_bits_}}) {
      const auto n = static_cast<int64_t>(list->size());
      if (n <= 1 || n == layer.layers) continue;
      return fmt::format("{}: found {} numbers, expected 1 or {}, one a layer of the model", key, n, layer.layers);
    }
    if ((side_bits(bits_, layer) == 16) != (side_bits(values(), layer) == 16)) {
      return fmt::format("bits: layer {} has 16 bits on one side only, expected both or none", layer.layer);
    }
    return packs(layer) ? QuantizingCodec::check_layer(layer) : "";
  }

  QuantizedFormat format(const LayerContext& layer) const override {
    return {.keys = side(side_bits(bits_, layer), layer.cache.shape()),
            .values = side(side_bits(values(), layer), layer.cache.shape())};
  }
  int64_t key_block() const override { return base_ == "kivi" ? residual_length_ : 1; }
  int64_t value_residual() const override { return base_ == "kivi" ? residual_length_ : 0; }
  bool packs(const LayerContext& layer) const override { return side_bits(bits_, layer) != 16; }

 private:
  static void check_side(const std::string& place, const char* key, int64_t bits, std::vector<std::string>& problems) {
    if (bits != 16) check_bits(place, key, bits, problems);
  }
  [[nodiscard]] const std::vector<int64_t>& values() const { return value_bits_.empty() ? bits_ : value_bits_; }
  [[nodiscard]] static int64_t side_bits(const std::vector<int64_t>& list, const LayerContext& layer) {
    return list.size() == 1 ? list[0] : list[layer.layer];
  }
  [[nodiscard]] kernels::QuantFormat side(int64_t bits, const LayerShape& shape) const {
    if (base_ == "kivi") {
      return {.bits = static_cast<int>(bits), .group_size = group_size_, .meta = meta_type(shape)};
    }
    return {.bits = static_cast<int>(bits),
            .group_size = shape.head_dim,
            .meta = meta_type(shape),
            .rule = kernels::QuantRule::whole_zero,
            .token_groups = true};
  }

  std::string base_ = "kivi";
  std::vector<int64_t> bits_ = {4};
  std::vector<int64_t> value_bits_;
  int64_t group_size_ = 32;
  int64_t residual_length_ = 32;
};

KVARENA_CODEC(KvTuner, {.name = "kvtuner",
                        .title = "KVTuner",
                        .summary = "Gives each layer its own bits for keys and for values.",
                        .paper = "arXiv:2502.04420, sections 4 and 5"});

}  // namespace
}  // namespace kvarena
