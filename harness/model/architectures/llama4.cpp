// Llama 4, text alone: three layers of four attend inside chunks of the sequence; the fourth sees all of it, is not
// rotated, and its queries grow with their position. Experts, one a token and one for all, in all layers or every
// second.

#include <algorithm>
#include <array>
#include <utility>

#include "harness/model/architectures/families.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

constexpr int64_t kStep = 8192;  // tokens of a chunk, and between two temperatures
constexpr double kTemperature = 0.1;
constexpr std::array kRenamed = {NamePair{"ffn_gate", "feed_forward.gate_proj"},
                                 NamePair{"ffn_up", "feed_forward.up_proj"},
                                 NamePair{"ffn_down", "feed_forward.down_proj"},
                                 NamePair{"ffn_gate_inp", "feed_forward.router"},
                                 NamePair{"ffn_gate_exps", "feed_forward.experts.gate_proj"},
                                 NamePair{"ffn_up_exps", "feed_forward.experts.up_proj"},
                                 NamePair{"ffn_down_exps", "feed_forward.experts.down_proj"},
                                 NamePair{"ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"},
                                 NamePair{"ffn_up_shexp", "feed_forward.shared_expert.up_proj"},
                                 NamePair{"ffn_down_shexp", "feed_forward.shared_expert.down_proj"}};

void set_features(ModelConfig& config) {
  config.rope_interleaved = true;
  config.expert.sigmoid_scores = true;
  config.expert.weighted_inputs = true;
}

/// Layers that are rotated attend in chunks.
void chunk_rotated_layers(int64_t size, ModelConfig& config) {
  config.sliding_window = size;
  config.chunked_window = size > 0;
  config.sliding_layers.clear();
  for (int64_t layer = 0; size > 0 && layer < config.layers; ++layer) {
    config.sliding_layers.push_back(config.is_rotated(layer));
  }
}

/// Takes the layers from "layer_types", where they are not those that are rotated.
void read_chunks(const JsonSection& root, ModelConfig& config) {
  chunk_rotated_layers(std::max<int64_t>(0, root.integer("attention_chunk_size", 0)), config);
  if (config.sliding_window == 0) return;
  std::vector<bool> chunked = layers_of_type(root, "chunked_attention", config.layers);
  if (!chunked.empty()) config.sliding_layers = std::move(chunked);
}

void read(const JsonSection& root, ModelConfig& config) {
  set_features(config);
  read_attention_biases(root, false, config);
  config.unit_qk_norm = root.boolean("use_qk_norm", true);
  ExpertConfig& expert = config.expert;
  expert.experts = root.integer("num_local_experts");
  expert.experts_per_token = root.integer("num_experts_per_tok", 1);
  expert.intermediate_size = config.intermediate_size;
  expert.shared_experts = 1;
  expert.shared_intermediate_size = config.intermediate_size;
  expert.sparse_step = root.integer("interleave_moe_layer_step", 1);
  if (const std::vector<int64_t> sparse = root.integers("moe_layers"); !sparse.empty()) {
    expert.sparse_step = 1;
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      if (std::ranges::find(sparse, layer) == sparse.end()) expert.dense_layers.push_back(layer);
    }
  }
  config.intermediate_size = root.integer("intermediate_size_mlp", config.intermediate_size);
  read_unrotated_layers(root, config);
  read_chunks(root, config);
  config.temperature_step = root.integer("floor_scale", kStep);
  if (root.boolean("attn_temperature_tuning", true)) config.temperature = root.number("attn_scale", kTemperature);
}

/// The format leaves out sizes of chunks and temperatures, and that Scout alone normalises queries and keys.
void read_gguf(const GgufFile& file, const std::string& prefix, ModelConfig& config) {
  set_features(config);
  constexpr int64_t kScoutExperts = 16;
  config.unit_qk_norm = config.expert.experts == kScoutExperts;
  config.expert.shared_experts = 1;
  config.expert.shared_intermediate_size = config.expert.intermediate_size;
  config.expert.sparse_step = file.find_int(prefix + ".interleave_moe_layer_step").value_or(1);
  leave_unrotated(kUnrotatedInterval, config);
  chunk_rotated_layers(kStep, config);
  config.temperature = kTemperature;
  config.temperature_step = kStep;
}

}  // namespace

const Architecture kLlama4{.name = "llama4_text",
                           .gguf = "llama4",
                           .read = read,
                           .read_gguf = read_gguf,
                           .tensors = {.mlp = "feed_forward.",
                                       .router = "feed_forward.router",
                                       .experts = "feed_forward.experts.",
                                       .shared = "feed_forward.shared_expert.",
                                       .gate_up = "gate_up_proj"},
                           .rope_theta = 500000.0,
                           .renamed = kRenamed};

}  // namespace kvarena
