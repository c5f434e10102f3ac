// GLM-4 of 2025 (9B and 32B, also GLM-Z1), dense: norms before and behind attention and feed-forward, and half of each
// head rotated, in pairs of neighbours.

#include <array>

#include "harness/model/architectures/families.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

constexpr std::array kRenamed = {NamePair{"ffn_up", "mlp.gate_up_proj"}};

void set_features(ModelConfig& config) {
  config.output_norms = true;
  config.rope_interleaved = true;
}

void read(const JsonSection& root, ModelConfig& config) {
  set_features(config);
  config.qkv_bias = root.boolean("attention_bias", true);
}

void read_gguf(const GgufFile& file, const std::string& prefix, ModelConfig& config) {
  set_features(config);
  config.rotated_channels = file.find_int(prefix + ".rope.dimension_count").value_or(config.head_dim / 2);
}

}  // namespace

const Architecture kGlm4{.name = "glm4",
                         .gguf = "glm4",
                         .read = read,
                         .read_gguf = read_gguf,
                         .tensors = {.attention_out_norm = "post_self_attn_layernorm.weight",
                                     .mlp_out_norm = "post_mlp_layernorm.weight",
                                     .gate_up = "gate_up_proj"},
                         .rotary_share = 0.5,
                         .renamed = kRenamed};

}  // namespace kvarena
