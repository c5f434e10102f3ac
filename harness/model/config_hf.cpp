// config.json of Hugging Face checkpoints.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/model/config.h"

namespace kvarena {
namespace {

using nlohmann::json;

const std::vector<std::string>& known_architectures() {
  static const std::vector<std::string> names = {"llama",     "mistral",     "qwen2",      "qwen3",
                                                 "qwen3_moe", "deepseek_v2", "deepseek_v3"};
  return names;
}

/// One JSON object of the file; a null counts as absent, as it does for the reference library.
class Section {
 public:
  Section(std::string place, const json& object) : place_(std::move(place)), object_(object) {}

  [[nodiscard]] bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  [[nodiscard]] const json& at(const char* key) const {
    if (has(key)) return object_.at(key);
    std::vector<std::string> keys;
    for (const auto& item : object_.items()) keys.push_back(item.key());
    fail({.place = place_, .found = fmt::format("no key \"{}\"", key), .nearest = nearest_name(key, keys)});
  }

  [[nodiscard]] int64_t integer(const char* key) const {
    const json& value = at(key);
    if (value.is_number_float()) {  // exporters sometimes write 32768.0
      const double number = value.get<double>();
      if (std::abs(number) < 1e15 && number == std::floor(number)) return static_cast<int64_t>(number);
    }
    if (!value.is_number_integer()) fail_type(key, "an integer");
    return value.get<int64_t>();
  }
  [[nodiscard]] double number(const char* key) const {
    if (!at(key).is_number()) fail_type(key, "a number");
    return at(key).get<double>();
  }
  [[nodiscard]] bool boolean(const char* key) const {
    if (!at(key).is_boolean()) fail_type(key, "true or false");
    return at(key).get<bool>();
  }
  [[nodiscard]] std::string string(const char* key) const {
    if (!at(key).is_string()) fail_type(key, "a string");
    return at(key).get<std::string>();
  }
  [[nodiscard]] int64_t integer(const char* key, int64_t absent) const { return has(key) ? integer(key) : absent; }
  [[nodiscard]] double number(const char* key, double absent) const { return has(key) ? number(key) : absent; }
  [[nodiscard]] bool boolean(const char* key, bool absent) const { return has(key) ? boolean(key) : absent; }
  [[nodiscard]] std::string string(const char* key, const char* absent) const {
    return has(key) ? string(key) : absent;
  }

  [[nodiscard]] std::vector<int64_t> integers(const char* key) const {
    if (!has(key)) return {};
    const json& value = at(key);
    if (value.is_number_integer()) return {value.get<int64_t>()};
    if (!value.is_array()) fail_type(key, "an integer or a list of integers");
    std::vector<int64_t> list;
    for (const json& item : value) {
      if (!item.is_number_integer()) fail_type(key, "an integer or a list of integers");
      list.push_back(item.get<int64_t>());
    }
    return list;
  }

  [[nodiscard]] Section section(const char* key) const {
    if (!at(key).is_object()) fail_type(key, "an object");
    return {place_ + ": " + key, at(key)};
  }

  [[noreturn]] void fail_type(const char* key, const char* expected) const {
    fail({.place = fmt::format("{}: {}", place_, key), .found = at(key).dump().substr(0, 60), .expected = expected});
  }
  [[nodiscard]] const std::string& place() const { return place_; }

 private:
  std::string place_;
  const json& object_;
};

json parse_file(const std::filesystem::path& file) {
  try {
    json content = json::parse(read_file(file));
    if (!content.is_object()) fail({.place = file.string(), .found = "no JSON object", .expected = "{ ... }"});
    return content;
  } catch (const json::exception& error) {
    fail({.place = file.string(), .found = error.what(), .expected = "JSON"});
  }
}

RopeScaling read_rope_scaling(const Section& rope, int64_t max_position) {
  RopeScaling scaling;
  const std::string type = rope.has("rope_type") ? rope.string("rope_type") : rope.string("type", "default");
  scaling.original_max_position = rope.integer("original_max_position_embeddings", max_position);
  if (type == "default") return scaling;
  scaling.factor = rope.number("factor");
  if (type == "linear") {
    scaling.type = RopeScaling::Type::linear;
  } else if (type == "dynamic") {
    scaling.type = RopeScaling::Type::dynamic;
  } else if (type == "llama3") {
    scaling.type = RopeScaling::Type::llama3;
    scaling.low_freq_factor = rope.number("low_freq_factor");
    scaling.high_freq_factor = rope.number("high_freq_factor");
    scaling.original_max_position = rope.integer("original_max_position_embeddings");
  } else if (type == "yarn") {
    scaling.type = RopeScaling::Type::yarn;
    scaling.beta_fast = rope.number("beta_fast", scaling.beta_fast);
    scaling.beta_slow = rope.number("beta_slow", scaling.beta_slow);
    if (rope.has("attention_factor")) scaling.attention_factor = rope.number("attention_factor");
    scaling.mscale = rope.number("mscale", 0.0);
    scaling.mscale_all_dim = rope.number("mscale_all_dim", 0.0);
    scaling.truncate = rope.boolean("truncate", true);
  } else {
    fail({.place = rope.place() + ": rope_type",
          .found = fmt::format("\"{}\"", type),
          .expected = "default, linear, dynamic, llama3 or yarn"});
  }
  return scaling;
}

/// Older files have rope_theta and rope_scaling, newer ones both inside rope_parameters.
void read_rope(const Section& root, ModelConfig& config) {
  config.rope_theta = root.number("rope_theta", 10000.0);
  if (root.has("rope_parameters")) {
    const Section rope = root.section("rope_parameters");
    config.rope_theta = rope.number("rope_theta", config.rope_theta);
    config.rope_scaling = read_rope_scaling(rope, config.max_position);
  } else if (root.has("rope_scaling")) {
    config.rope_scaling = read_rope_scaling(root.section("rope_scaling"), config.max_position);
  } else {
    config.rope_scaling.original_max_position = config.max_position;
  }
}

/// Mistral's window holds for all layers; Qwen's is off unless use_sliding_window, and then for the upper layers.
void read_sliding_window(const Section& root, ModelConfig& config) {
  const bool qwen = config.architecture.starts_with("qwen");
  if (config.architecture != "mistral" && !qwen) return;
  if (qwen && !root.boolean("use_sliding_window", false)) return;
  config.sliding_window = root.integer("sliding_window", 0);
  if (config.sliding_window <= 0) {
    config.sliding_window = 0;
    return;
  }
  if (qwen) config.sliding_first_layer = root.integer("max_window_layers", 0);
}

void read_experts(const Section& root, ModelConfig& config) {
  ExpertConfig& expert = config.expert;
  if (config.architecture == "qwen3_moe") {
    expert.experts = root.integer("num_experts");
    expert.experts_per_token = root.integer("num_experts_per_tok");
    expert.intermediate_size = root.integer("moe_intermediate_size");
    expert.sparse_step = root.integer("decoder_sparse_step", 1);
    expert.dense_layers = root.integers("mlp_only_layers");
    expert.normalize_weights = root.boolean("norm_topk_prob", false);
  } else if (config.architecture.starts_with("deepseek") && root.has("n_routed_experts")) {
    expert.experts = root.integer("n_routed_experts");
    expert.experts_per_token = root.integer("num_experts_per_tok");
    expert.intermediate_size = root.integer("moe_intermediate_size");
    expert.shared_experts = root.integer("n_shared_experts", 0);
    expert.shared_intermediate_size = expert.shared_experts * expert.intermediate_size;
    expert.first_sparse_layer = root.integer("first_k_dense_replace", 0);
    expert.normalize_weights = root.boolean("norm_topk_prob", false);
    expert.weight_scale = root.number("routed_scaling_factor", 1.0);
    expert.sigmoid_scores = config.architecture == "deepseek_v3";
    const bool grouped =
        config.architecture == "deepseek_v3" || root.string("topk_method", "greedy") == "group_limited_greedy";
    expert.groups = grouped ? root.integer("n_group", 1) : 1;
    expert.groups_per_token = grouped ? root.integer("topk_group", 1) : 1;
  }
}

void read_latent_attention(const Section& root, ModelConfig& config) {
  LatentAttentionConfig& latent = config.latent;
  latent.kv_lora_rank = root.integer("kv_lora_rank");
  latent.q_lora_rank = root.integer("q_lora_rank", 0);
  latent.nope_head_dim = root.integer("qk_nope_head_dim");
  latent.rope_head_dim = root.integer("qk_rope_head_dim");
  latent.v_head_dim = root.integer("v_head_dim");
  config.head_dim = latent.nope_head_dim + latent.rope_head_dim;
  config.rope_interleaved = root.boolean("rope_interleave", true);
}

kernels::DType read_dtype(const Section& root) {
  const std::string name = root.has("dtype") ? root.string("dtype") : root.string("torch_dtype", "float32");
  if (name == "float32") return kernels::DType::f32;
  if (name == "float16") return kernels::DType::f16;
  if (name == "bfloat16") return kernels::DType::bf16;
  fail({.place = root.place() + ": dtype", .found = name, .expected = "float32, float16 or bfloat16"});
}

void read_special_ids(const Section& root, const std::filesystem::path& generation_json, ModelConfig& config) {
  const auto narrow = [&](const char* key, int64_t id) {
    if (id < 0 || id >= config.vocab_size) {
      fail({.place = fmt::format("{}: {}", root.place(), key),
            .found = fmt::to_string(id),
            .expected = fmt::format("an id below vocab_size {}", config.vocab_size)});
    }
    return static_cast<int32_t>(id);
  };
  if (root.has("bos_token_id")) config.bos = narrow("bos_token_id", root.integer("bos_token_id"));
  std::vector<int64_t> ids = root.integers("eos_token_id");
  if (std::filesystem::exists(generation_json)) {
    const json generation = parse_file(generation_json);
    for (const int64_t id : Section(generation_json.string(), generation).integers("eos_token_id")) ids.push_back(id);
  }
  for (const int64_t id : ids) {
    const int32_t eos = narrow("eos_token_id", id);
    if (std::find(config.eos.begin(), config.eos.end(), eos) == config.eos.end()) config.eos.push_back(eos);
  }
}

std::string read_architecture(const Section& root) {
  std::string type = root.string("model_type");
  const auto& known = known_architectures();
  if (std::find(known.begin(), known.end(), type) != known.end()) return type;
  fail({.place = root.place() + ": model_type",
        .found = fmt::format("\"{}\"", type),
        .expected = "one of llama, mistral, qwen2, qwen3, qwen3_moe, deepseek_v2, deepseek_v3",
        .nearest = nearest_name(type, known)});
}

}  // namespace

ModelConfig read_hf_config(const std::filesystem::path& config_json) {
  const json content = parse_file(config_json);
  const Section root(config_json.string(), content);
  ModelConfig config;
  config.architecture = read_architecture(root);
  config.name = std::filesystem::absolute(config_json).parent_path().filename().string();
  config.layers = root.integer("num_hidden_layers");
  config.hidden_size = root.integer("hidden_size");
  config.q_heads = root.integer("num_attention_heads");
  config.kv_heads = root.integer("num_key_value_heads", config.q_heads);
  if (!root.has("head_dim") && (config.q_heads <= 0 || config.hidden_size % config.q_heads != 0)) {
    fail({.place = root.place() + ": num_attention_heads",
          .found = fmt::format("{} with hidden_size {}", config.q_heads, config.hidden_size),
          .expected = "a divisor of hidden_size, or a key head_dim"});
  }
  config.head_dim = root.has("head_dim") ? root.integer("head_dim") : config.hidden_size / config.q_heads;
  config.intermediate_size = root.integer("intermediate_size");
  config.vocab_size = root.integer("vocab_size");
  config.max_position = root.integer("max_position_embeddings");
  config.rms_norm_eps = root.number("rms_norm_eps");
  config.tie_embeddings = root.boolean("tie_word_embeddings", false);
  config.qkv_bias = config.architecture == "qwen2" || root.boolean("attention_bias", false);
  config.output_bias = config.architecture != "qwen2" && root.boolean("attention_bias", false);
  config.mlp_bias = root.boolean("mlp_bias", false);
  config.qk_norm = config.architecture.starts_with("qwen3");
  config.dtype = read_dtype(root);
  if (const std::string activation = root.string("hidden_act", "silu"); activation != "silu") {
    fail({.place = root.place() + ": hidden_act", .found = activation, .expected = "silu"});
  }
  read_rope(root, config);
  read_sliding_window(root, config);
  read_experts(root, config);
  if (config.architecture.starts_with("deepseek")) read_latent_attention(root, config);
  read_special_ids(root, config_json.parent_path() / "generation_config.json", config);
  check_config(config, root.place());
  return config;
}

}  // namespace kvarena
