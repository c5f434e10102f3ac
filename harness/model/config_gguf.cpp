// The model's description in GGUF metadata: general.architecture, then keys that start with it.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "harness/model/architectures/architecture.h"
#include "harness/model/config.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

const GgufTensor* find_tensor(const GgufFile& file, std::string_view name) {
  const auto& all = file.tensors();
  const auto it = std::find_if(all.begin(), all.end(), [&](const GgufTensor& tensor) { return tensor.name == name; });
  return it == all.end() ? nullptr : &*it;
}

/// Divisors of rotary frequencies; empty when the file has no such tensor.
std::vector<float> read_factors(const GgufFile& file, const char* name) {
  const GgufTensor* factors = find_tensor(file, name);
  if (factors == nullptr) return {};
  if (factors->type != TensorType::f32) {
    fail({.place = fmt::format("{}: tensor {}", file.path().string(), name),
          .found = factors->stored_type,
          .expected = "F32"});
  }
  std::vector<float> values(factors->bytes.size() / sizeof(float));
  convert_to_f32(factors->type, factors->bytes.data(), static_cast<int64_t>(values.size()), values.data());
  return values;
}

RopeScaling read_rope_scaling(const GgufFile& file, const std::string& arch, int64_t max_position) {
  RopeScaling scaling;
  scaling.original_max_position = file.find_int(arch + ".rope.scaling.original_context_length").value_or(max_position);
  const std::string type = file.find_string(arch + ".rope.scaling.type").value_or("none");
  // Before rope.scaling.* there was rope.scale_linear.
  const double factor = file.find_float(arch + ".rope.scaling.factor")
                            .value_or(file.find_float(arch + ".rope.scale_linear").value_or(1.0));
  if (type == "yarn") {
    scaling.type = RopeScaling::Type::yarn;
    scaling.factor = factor;
    scaling.beta_fast = file.find_float(arch + ".rope.scaling.yarn_beta_fast").value_or(scaling.beta_fast);
    scaling.beta_slow = file.find_float(arch + ".rope.scaling.yarn_beta_slow").value_or(scaling.beta_slow);
    // The format's factor multiplies the customary one, the key of Hugging Face replaces it.
    if (const std::optional<double> by = file.find_float(arch + ".rope.scaling.attn_factor")) {
      scaling.attention_factor = *by * (0.1 * std::log(factor) + 1);
    }
  } else if (type == "linear" || (type == "none" && factor != 1.0)) {
    scaling.type = RopeScaling::Type::linear;
    scaling.factor = factor;
  } else if (type != "none") {
    fail({.place = fmt::format("{}: metadata {}.rope.scaling.type", file.path().string(), arch),
          .found = fmt::format("\"{}\"", type),
          .expected = "none, linear or yarn"});
  }
  if (std::vector<float> factors = read_factors(file, "rope_freqs.weight"); !factors.empty()) {
    scaling.type = RopeScaling::Type::factors;
    scaling.frequency_factors = std::move(factors);
  }
  if (std::vector<float> factors = read_factors(file, "rope_factors_long.weight"); !factors.empty()) {
    scaling.type = RopeScaling::Type::longrope;
    scaling.frequency_factors = read_factors(file, "rope_factors_short.weight");
    scaling.long_factors = std::move(factors);
    scaling.factor = static_cast<double>(max_position) / static_cast<double>(scaling.original_max_position);
    scaling.attention_factor = file.find_float(arch + ".rope.scaling.attn_factor");
  }
  return scaling;
}

void read_experts(const GgufFile& file, const std::string& arch, ModelConfig& config) {
  ExpertConfig& expert = config.expert;
  expert.experts = file.find_int(arch + ".expert_count").value_or(0);
  if (expert.experts == 0) return;
  expert.experts_per_token = file.get_int(arch + ".expert_used_count");
  expert.intermediate_size = file.find_int(arch + ".expert_feed_forward_length").value_or(config.intermediate_size);
  expert.shared_experts = file.find_int(arch + ".expert_shared_count").value_or(0);
  expert.shared_intermediate_size = expert.shared_experts * expert.intermediate_size;
  expert.first_sparse_layer = file.find_int(arch + ".leading_dense_block_count").value_or(0);
  expert.normalize_weights = file.find_bool(arch + ".expert_weights_norm").value_or(false);
  expert.weight_scale = file.find_float(arch + ".expert_weights_scale").value_or(1.0);
  expert.sigmoid_scores = file.find_int(arch + ".expert_gating_func").value_or(1) == 2;
  expert.groups = file.find_int(arch + ".expert_group_count").value_or(1);
  expert.groups_per_token = file.find_int(arch + ".expert_group_used_count").value_or(1);
}

void read_special_ids(const GgufFile& file, ModelConfig& config) {
  const auto id_of = [&](const char* key) -> std::optional<int32_t> {
    const std::optional<int64_t> id = file.find_int(key);
    if (!id) return std::nullopt;
    if (*id < 0 || *id >= config.vocab_size) {
      fail({.place = fmt::format("{}: metadata {}", file.path().string(), key),
            .found = fmt::to_string(*id),
            .expected = fmt::format("an id below the vocabulary's {}", config.vocab_size)});
    }
    return static_cast<int32_t>(*id);
  };
  config.bos = id_of("tokenizer.ggml.bos_token_id");
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const std::optional<int32_t> id = id_of(key);
    if (id && std::find(config.eos.begin(), config.eos.end(), *id) == config.eos.end()) config.eos.push_back(*id);
  }
}

/// The dtype of the first layer's value projection, alone or with others, which every converter leaves in the file's
/// main type.
kernels::DType weight_dtype(const GgufFile& file) {
  const GgufTensor* tensor = find_tensor(file, "blk.0.attn_v.weight");
  if (tensor == nullptr) tensor = find_tensor(file, "blk.0.attn_qkv.weight");
  if (tensor == nullptr) return kernels::DType::f32;
  if (tensor->type == TensorType::f16) return kernels::DType::f16;
  if (tensor->type == TensorType::bf16) return kernels::DType::bf16;
  return kernels::DType::f32;
}

int64_t read_vocab_size(const GgufFile& file, const std::string& arch) {
  if (const std::optional<int64_t> size = file.find_int(arch + ".vocab_size")) return *size;
  if (const GgufTensor* embedding = find_tensor(file, "token_embd.weight")) return embedding->shape[0];
  fail({.place = file.path().string(),
        .found = fmt::format("neither metadata {}.vocab_size nor a tensor token_embd.weight", arch)});
}

}  // namespace

ModelConfig read_gguf_config(const GgufFile& file) {
  ModelConfig config;
  const Architecture& architecture =
      find_architecture(fmt::format("{}: metadata general.architecture", file.path().string()),
                        file.get_string("general.architecture"), &Architecture::gguf);
  config.architecture = architecture.name;
  const std::string arch(architecture.gguf);
  const std::string place = file.path().string() + ": metadata";
  config.name = file.find_string("general.name").value_or(file.path().stem().string());
  config.layers = file.get_int(arch + ".block_count");
  config.hidden_size = file.get_int(arch + ".embedding_length");
  config.q_heads = file.get_int(arch + ".attention.head_count");
  config.kv_heads = file.find_int(arch + ".attention.head_count_kv").value_or(config.q_heads);
  config.intermediate_size = file.get_int(arch + ".feed_forward_length");
  config.vocab_size = read_vocab_size(file, arch);
  config.max_position = file.get_int(arch + ".context_length");
  if (config.q_heads <= 0) fail({.place = place, .found = fmt::format("{} query heads", config.q_heads)});
  config.head_dim = file.find_int(arch + ".attention.key_length").value_or(config.hidden_size / config.q_heads);
  config.rope_theta = file.find_float(arch + ".rope.freq_base").value_or(10000.0);
  config.rms_norm_eps = file.get_float(arch + ".attention.layer_norm_rms_epsilon");
  config.tie_embeddings = find_tensor(file, "output.weight") == nullptr;
  config.qkv_bias =
      find_tensor(file, "blk.0.attn_q.bias") != nullptr || find_tensor(file, "blk.0.attn_qkv.bias") != nullptr;
  config.output_bias = find_tensor(file, "blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = find_tensor(file, "blk.0.ffn_up.bias") != nullptr;
  config.qk_norm = find_tensor(file, "blk.0.attn_q_norm.weight") != nullptr;
  config.sliding_window = file.find_int(arch + ".attention.sliding_window").value_or(0);
  config.dtype = weight_dtype(file);
  config.rope_scaling = read_rope_scaling(file, arch, config.max_position);
  read_experts(file, arch, config);
  if (architecture.read_gguf != nullptr) architecture.read_gguf(file, arch, config);
  extend_window(config);
  read_special_ids(file, config);
  check_config(config, place);
  const int64_t rotated = file.find_int(arch + ".rope.dimension_count").value_or(config.rotary_dim());
  if (rotated != config.rotary_dim()) {
    fail({.place = fmt::format("{} {}.rope.dimension_count", place, arch),
          .found = fmt::to_string(rotated),
          .expected = fmt::format("{}: the families known here rotate whole heads", config.rotary_dim())});
  }
  return config;
}

}  // namespace kvarena
