#pragma once
// Description of a family of decoders: the config keys that describe it and the names of its tensors.
//
// All families share one forward pass, steered by the features of ModelConfig. A new dense family is one file here that
// defines an Architecture, and a line in architectures.cpp.

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "harness/model/config.h"
#include "harness/model/json_section.h"

namespace kvarena {

/// Names in Hugging Face layout; names inside a layer follow "model.layers.N.". Projections, embedding and head are
/// named without ".weight" and ".bias".
struct TensorNames {
  std::string_view embedding = "model.embed_tokens";
  std::string_view final_norm = "model.norm.weight";
  std::string_view head = "lm_head";
  std::string_view layer = "model.layers.";
  std::string_view attention_norm = "input_layernorm.weight";
  std::string_view q = "self_attn.q_proj";
  std::string_view k = "self_attn.k_proj";
  std::string_view v = "self_attn.v_proj";
  std::string_view qkv = "";  // the three in one tensor, one below the other; files may have it or the three
  std::string_view sinks = "self_attn.sinks";
  std::string_view q_norm = "self_attn.q_norm.weight";
  std::string_view k_norm = "self_attn.k_norm.weight";
  std::string_view output = "self_attn.o_proj";
  std::string_view expansion = "self_attn.";       // latent attention: before the matrices from latent to heads
  std::string_view q_down = "self_attn.q_a_proj";  // queries in two steps, when q_lora_rank > 0
  std::string_view q_down_norm = "self_attn.q_a_layernorm.weight";
  std::string_view q_up = "self_attn.q_b_proj";
  std::string_view latent = "self_attn.kv_a_proj_with_mqa";
  std::string_view latent_norm = "self_attn.kv_a_layernorm.weight";
  std::string_view attention_out_norm = "";  // where there are ModelConfig::output_norms
  std::string_view mlp_norm = "post_attention_layernorm.weight";
  std::string_view mlp_out_norm = "";
  std::string_view mlp = "mlp.";                    // dense layer: before the three names below
  std::string_view router = "mlp.gate";             // sparse layer
  std::string_view experts = "mlp.experts.";        // before the expert's number
  std::string_view shared = "mlp.shared_experts.";  // the experts that every token visits
  std::string_view shared_gate = "mlp.shared_expert_gate";
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";
  std::string_view gate_up = "";  // gates and ups in one tensor, dense or of all experts of a layer
  bool alternating = false;       // there gates and ups of experts alternate; else ups are below the gates
  std::string_view down = "down_proj";
  // Recurrent layers: queries, keys, values and gates, betas and decays
  std::string_view in_qkvz = "";  // the first four in one tensor, each key head's behind the other's; files may have it
  std::string_view in_ba = "";    // the others likewise
  std::string_view in_qkv = "linear_attn.in_proj_qkv";
  std::string_view in_z = "linear_attn.in_proj_z";
  std::string_view in_b = "linear_attn.in_proj_b";
  std::string_view in_a = "linear_attn.in_proj_a";
  std::string_view convolution = "linear_attn.conv1d.weight";
  std::string_view decay = "linear_attn.A_log";
  std::string_view decay_bias = "linear_attn.dt_bias";
  std::string_view delta_norm = "linear_attn.norm.weight";
  std::string_view delta_output = "linear_attn.out_proj";
};

/// Names of the parts of a layer in GGUF files, and in Hugging Face layout.
using NamePair = std::pair<std::string_view, std::string_view>;

struct Architecture {
  std::string_view name;  // "model_type" of config.json
  std::string_view gguf;  // "general.architecture"; empty where files of this family go by another's word

  /// Reads this family's own keys of config.json, after the keys that all families share.
  void (*read)(const JsonSection& root, ModelConfig& config) = nullptr;
  /// Reads this family's own keys of GGUF metadata; null when the shared keys and the tensors' names suffice.
  void (*read_gguf)(const GgufFile& file, const std::string& prefix, ModelConfig& config) = nullptr;

  TensorNames tensors;
  double rope_theta = 10000.0;        // of a config.json that names none
  double rotary_share = 0;            // of a head, the same; 0: the family rotates whole heads
  std::string_view quantised = "";    // "quant_method" that is read as it is
  std::span<const NamePair> renamed;  // parts of a layer that GGUF files of this family name otherwise than most
  bool gguf_pairs = false;            // they hold the two channels of a rotation pair side by side
};

[[nodiscard]] std::span<const Architecture* const> architectures();
/// The family that a file calls `name`, by Architecture::name or Architecture::gguf. Throws UserError naming `place`
/// and the families there are.
[[nodiscard]] const Architecture& find_architecture(const std::string& place, const std::string& name,
                                                    std::string_view Architecture::*by);
/// The family named by ModelConfig::architecture, which readers have checked.
[[nodiscard]] const Architecture& architecture_of(const ModelConfig& config);
/// The family of GGUF files that call themselves `word`, or null.
[[nodiscard]] const Architecture* gguf_architecture(std::string_view word);

/// Reads whether attention's projections have biases, that of its output as the others.
void read_attention_biases(const JsonSection& root, bool unless_said, ModelConfig& config);

/// [layers] whether a layer is of type `word`, by "layer_types"; empty where the file has none. Others are
/// full_attention.
[[nodiscard]] std::vector<bool> layers_of_type(const JsonSection& root, std::string_view word, int64_t layers);
/// [layers] true but for the last of each `interval`.
[[nodiscard]] std::vector<bool> all_but_each_last(int64_t interval, int64_t layers);

/// Reads which layers see only `sliding_window` tokens: from "layer_types" where the file has it; else those from
/// `first_layer` on.
void read_sliding_window(const JsonSection& root, int64_t first_layer, ModelConfig& config);

/// Every so many layers one is not rotated, where a family's file does not say which.
inline constexpr int64_t kUnrotatedInterval = 4;
/// Layers that are not rotated are the last of each `interval`.
void leave_unrotated(int64_t interval, ModelConfig& config);
/// Reads which layers are not rotated: those that have 0 in "no_rope_layers", else by "no_rope_layer_interval".
void read_unrotated_layers(const JsonSection& root, ModelConfig& config);

}  // namespace kvarena
