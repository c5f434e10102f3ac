// gpt-oss: layers with a window and without take turns, each head's softmax has a learned sink, experts have biases and
// clamped gates (arXiv:2508.10925, section 2). Experts are published in MXFP4 and become floats as they are loaded.

#include <array>

#include "harness/model/architectures/families.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

constexpr double kGateSlope = 1.702;  // of kernels::clamped_mul
constexpr double kGateLimit = 7;
constexpr std::array kRenamed = {NamePair{"post_attention_norm", "post_attention_layernorm"},
                                 NamePair{"ffn_gate_inp", "mlp.router"}};

void set_features(ModelConfig& config) {
  config.attention_sinks = true;
  config.expert.biases = true;
  config.expert.normalize_weights = true;
}

void read(const JsonSection& root, ModelConfig& config) {
  set_features(config);
  read_attention_biases(root, true, config);
  config.gate_limit = root.number("swiglu_limit", kGateLimit);
  if (root.number("swiglu_alpha", kGateSlope) != kGateSlope) root.fail_value("swiglu_alpha", "1.702");
  if (config.gate_limit <= 0) root.fail_value("swiglu_limit", "a positive number");
  config.expert.experts = root.integer("num_local_experts");
  config.expert.experts_per_token = root.integer("num_experts_per_tok");
  config.expert.intermediate_size = config.intermediate_size;
  read_sliding_window(root, 0, config);
  if (!root.has("layer_types")) config.sliding_layers = all_but_each_last(2, config.layers);
}

/// The format leaves out what no published model of the family changes.
void read_gguf(const GgufFile& /*file*/, const std::string& /*prefix*/, ModelConfig& config) {
  set_features(config);
  config.gate_limit = kGateLimit;
  config.rope_scaling.truncate = false;
  config.sliding_layers = all_but_each_last(2, config.layers);
}

}  // namespace

const Architecture kGptOss{.name = "gpt_oss",
                           .gguf = "gpt-oss",
                           .read = read,
                           .read_gguf = read_gguf,
                           .tensors = {.router = "mlp.router", .gate_up = "gate_up_proj", .alternating = true},
                           .rope_theta = 150000.0,
                           .quantised = "mxfp4",
                           .renamed = kRenamed};

}  // namespace kvarena
