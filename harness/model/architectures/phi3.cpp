// Phi-3, Phi-3.5 and Phi-4 with its mini models: queries, keys and values in one tensor, gates and ups in another;
// windows longer than the original one by LongRoPE; the mini models of Phi-4 rotate three quarters of each head.

#include <array>

#include "harness/model/architectures/families.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

constexpr std::array kRenamed = {NamePair{"ffn_up", "mlp.gate_up_proj"}};

void read(const JsonSection& root, ModelConfig& config) { read_sliding_window(root, 0, config); }

void read_gguf(const GgufFile& file, const std::string& prefix, ModelConfig& config) {
  config.rotated_channels = file.find_int(prefix + ".rope.dimension_count").value_or(0);
}

}  // namespace

const Architecture kPhi3{.name = "phi3",
                         .gguf = "phi3",
                         .read = read,
                         .read_gguf = read_gguf,
                         .tensors = {.qkv = "self_attn.qkv_proj", .gate_up = "gate_up_proj"},
                         .rotary_share = 1,
                         .renamed = kRenamed};

}  // namespace kvarena
