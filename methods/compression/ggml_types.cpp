#include <fmt/format.h>

#include <array>

#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// Levels of iq4_nl.
constexpr std::array<float, 16> kUnevenLevels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};

/// llama.cpp's blocks of 32 channels of a token, for keys and values apart as its --cache-type-k and --cache-type-v
/// say; d and m are stored as f16 (bits a number):
///   q8_0    d = max |x| / 127, code = round(x / d), decoded d code (8.5)
///   q5_0    d = (the x of largest magnitude, with its sign) / -16, code = min(31, trunc(x / d + 16.5)), decoded
///           d (code - 16) (5.5);  q4_0 alike with 8 for 16 (4.5)
///   q5_1    m = min x, d = (max x - m) / 31, code = trunc((x - m) / d + 0.5), decoded d code + m (6);  q4_1 alike with
///           15 (5)
///   iq4_nl  16 uneven levels, codes by t = (the x of largest magnitude) / -127, then the d that fits them best (4.5)
/// Codes are those of the unrounded d and m. With `rotate` and a head_dim that 64 divides, keys are rotated by a
/// Hadamard matrix of the largest power of two that divides head_dim, values by matrices of 64, as llama.cpp does by
/// default since its pull request 21038 (LLAMA_ATTN_ROT_DISABLE). llama.cpp, ggml/src/ggml-quants.c:
/// quantize_row_*_ref.
class GgmlTypes final : public QuantizingCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("type_k", type_k_).one_of(kTypes).doc("keys");
    p("type_v", type_v_).one_of(kTypes).doc("values");
    p("rotate", rotate_).doc("rotate heads whose channels 64 divides, before they are quantised");
  }
  QuantizedFormat format(const LayerContext& layer) const override {
    const int64_t head_dim = layer.cache.shape().head_dim;
    QuantizedFormat format{.keys = side(type_k_), .values = side(type_v_)};
    if (rotate_ && head_dim % kRun == 0) {
      format.key_transform = hadamard_transform(head_dim, std::nullopt);
      format.value_transform = hadamard_transform(head_dim, std::nullopt, kRun);
    }
    return format;
  }

 private:
  static kernels::QuantFormat side(const std::string& type) {
    using kernels::QuantRule;
    kernels::QuantFormat side{.bits = type == "q8_0"           ? 8
                                      : type.starts_with("q5") ? 5
                                                               : 4,
                              .group_size = 32,
                              .meta = DType::f16,
                              .token_groups = true};
    if (type == "iq4_nl") {
      side.rule = QuantRule::ggml_fit;
      side.levels = kernels::Levels::codebook;
      side.codebook = kUnevenLevels.data();
    } else if (type.ends_with("_1")) {
      side.rule = QuantRule::ggml_range;
    } else {
      side.rule = type == "q8_0" ? QuantRule::ggml_q8 : QuantRule::ggml_signed;
      side.first_level = -(1 << (side.bits - 1));
    }
    return side;
  }

  static constexpr int64_t kRun = 64;
  inline static const std::vector<std::string> kTypes = {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl"};

  std::string type_k_ = "q8_0";
  std::string type_v_ = "q8_0";
  bool rotate_ = true;
};

KVARENA_CODEC(GgmlTypes, {.name = "ggml_types",
                          .title = "llama.cpp types",
                          .summary = "llama.cpp's blocks of 32 numbers in 4, 5 or 8 bits, rotated.",
                          .paper = "https://github.com/ggml-org/llama.cpp"});

}  // namespace
}  // namespace kvarena
