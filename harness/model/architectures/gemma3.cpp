// Gemma 3, text alone: norms before and behind attention and feed-forward, scaled embeddings, normalised queries and
// keys, GELU gates. Five layers of six see a window and are rotated by a theta of their own (arXiv:2503.19786, section
// 2).

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/model/architectures/families.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

constexpr int64_t kPattern = 6;  // every sixth layer sees all
constexpr double kSlidingTheta = 10000.0;
constexpr std::array kRenamed = {NamePair{"post_attention_norm", "post_attention_layernorm"},
                                 NamePair{"ffn_norm", "pre_feedforward_layernorm"},
                                 NamePair{"post_ffw_norm", "post_feedforward_layernorm"}};

void set_features(ModelConfig& config) {
  config.qk_norm = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.output_norms = true;
  config.gelu = true;
  config.sliding_rope_theta = config.sliding_rope_theta.value_or(kSlidingTheta);
}

void read(const JsonSection& root, ModelConfig& config) {
  set_features(config);
  config.norms_less_one = true;
  config.tie_embeddings = root.boolean("tie_word_embeddings", true);
  read_attention_biases(root, false, config);
  config.query_scalar = root.number("query_pre_attn_scalar", 256);
  config.logit_cap = root.number("final_logit_softcapping", 0);
  if (root.number("attn_logit_softcapping", 0) != 0) {
    root.fail_value("attn_logit_softcapping", "null: attention here has no cap of scores");
  }
  if (root.boolean("use_bidirectional_attention", false)) {
    root.fail_value("use_bidirectional_attention", "false: a decoder's tokens see none behind them");
  }
  if (root.string("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh") {
    root.fail_value("hidden_activation", "gelu_pytorch_tanh");
  }
  read_sliding_window(root, 0, config);
  if (root.has("layer_types")) return;
  const int64_t pattern = root.integer("sliding_window_pattern", kPattern);
  if (pattern < 1) root.fail_value("sliding_window_pattern", "a number of layers");
  config.sliding_layers = all_but_each_last(pattern, config.layers);
}

/// The format leaves out what no published model of the family changes; norms' weights are stored whole.
void read_gguf(const GgufFile& file, const std::string& prefix, ModelConfig& config) {
  config.sliding_rope_theta = file.find_float(prefix + ".rope.freq_base_swa");
  set_features(config);
  config.logit_cap = file.find_float(prefix + ".final_logit_softcapping").value_or(0);
  const std::string pattern = prefix + ".attention.sliding_window_pattern";
  const int64_t interval = std::max<int64_t>(1, file.find_int(pattern).value_or(kPattern));
  config.sliding_layers = all_but_each_last(interval, config.layers);
  // The 27B scales queries by the width of its heads in the residual stream, the smaller ones by head_dim.
  constexpr int64_t kLargest = 62;  // layers
  if (config.layers == kLargest) config.query_scalar = static_cast<double>(config.hidden_size / config.q_heads);
}

}  // namespace

const Architecture kGemma3{.name = "gemma3_text",
                           .gguf = "gemma3",
                           .read = read,
                           .read_gguf = read_gguf,
                           .tensors = {.attention_out_norm = "post_attention_layernorm.weight",
                                       .mlp_norm = "pre_feedforward_layernorm.weight",
                                       .mlp_out_norm = "post_feedforward_layernorm.weight"},
                           .rope_theta = 1e6,
                           .renamed = kRenamed};

}  // namespace kvarena
