// config.json of Hugging Face checkpoints.

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/model/architectures/architecture.h"
#include "harness/model/config.h"
#include "harness/model/json_section.h"

namespace kvarena {
namespace {

std::vector<float> read_factors(const JsonSection& rope, const char* key) {
  const std::vector<double> factors = rope.numbers(key);
  if (factors.empty() || std::ranges::any_of(factors, [](double factor) { return !(factor > 0); })) {
    fail({.place = fmt::format("{}: {}", rope.place(), key), .found = "no such numbers", .expected = "positive ones"});
  }
  return {factors.begin(), factors.end()};
}

/// `original` is the window before scaling where the section does not say it.
RopeScaling read_rope_scaling(const JsonSection& rope, int64_t max_position, int64_t original) {
  RopeScaling scaling;
  const std::string type = rope.has("rope_type") ? rope.string("rope_type") : rope.string("type", "default");
  scaling.original_max_position = rope.integer("original_max_position_embeddings", original);
  if (type == "default") return scaling;
  if (type == "longrope" || type == "su") {
    scaling.type = RopeScaling::Type::longrope;
    scaling.frequency_factors = read_factors(rope, "short_factor");
    scaling.long_factors = read_factors(rope, "long_factor");
    const auto reach = static_cast<double>(max_position);
    scaling.factor = rope.number("factor", reach / static_cast<double>(scaling.original_max_position));
    if (rope.has("attention_factor")) scaling.attention_factor = rope.number("attention_factor");
    return scaling;
  }
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
          .expected = "default, linear, dynamic, llama3, longrope or yarn"});
  }
  return scaling;
}

/// Reads rope_parameters of layers that see a window, which are rotated apart.
double read_sliding_theta(const JsonSection& rope, double absent) {
  if (const std::string type = rope.string("rope_type", "default"); type != "default") {
    fail({.place = rope.place() + ": rope_type",
          .found = fmt::format("\"{}\"", type),
          .expected = "default: scalings of layers with a window are not known here"});
  }
  return rope.number("rope_theta", absent);
}

/// Older files have rope_theta and rope_scaling, newer ones both inside rope_parameters, in one section or in one for
/// each kind of layer.
void read_rope(const JsonSection& root, const Architecture& architecture, ModelConfig& config) {
  config.rope_theta = root.number("rope_theta", architecture.rope_theta);
  double share = root.number("partial_rotary_factor", architecture.rotary_share);
  const int64_t original = root.integer("original_max_position_embeddings", config.max_position);
  if (root.has("rope_local_base_freq")) config.sliding_rope_theta = root.number("rope_local_base_freq");
  if (root.has("rope_parameters")) {
    JsonSection rope = root.section("rope_parameters");
    if (rope.has("sliding_attention")) {
      config.sliding_rope_theta = read_sliding_theta(rope.section("sliding_attention"), config.rope_theta);
    }
    if (rope.has("full_attention")) rope = rope.section("full_attention");
    config.rope_theta = rope.number("rope_theta", config.rope_theta);
    config.rope_scaling = read_rope_scaling(rope, config.max_position, original);
    share = rope.number("partial_rotary_factor", share);
  } else if (root.has("rope_scaling")) {
    config.rope_scaling = read_rope_scaling(root.section("rope_scaling"), config.max_position, original);
  } else {
    config.rope_scaling.original_max_position = config.max_position;
  }
  if (architecture.rotary_share > 0) {
    config.rotated_channels = static_cast<int64_t>(static_cast<double>(config.head_dim) * share);
  }
}

kernels::DType read_dtype(const JsonSection& root) {
  const std::string name = root.has("dtype") ? root.string("dtype") : root.string("torch_dtype", "float32");
  if (name == "float32") return kernels::DType::f32;
  if (name == "float16") return kernels::DType::f16;
  if (name == "bfloat16") return kernels::DType::bf16;
  fail({.place = root.place() + ": dtype", .found = name, .expected = "float32, float16 or bfloat16"});
}

void read_special_ids(const JsonSection& root, const std::filesystem::path& generation_json, ModelConfig& config) {
  const auto narrow = [&](const JsonSection& file, const char* key, int64_t id) {
    if (id < 0 || id >= config.vocab_size) {
      fail({.place = fmt::format("{}: {}", file.place(), key),
            .found = fmt::to_string(id),
            .expected = fmt::format("an id below vocab_size {}", config.vocab_size)});
    }
    return static_cast<int32_t>(id);
  };
  if (root.has("bos_token_id")) config.bos = narrow(root, "bos_token_id", root.integer("bos_token_id"));
  const auto read_ends = [&](const JsonSection& file) {
    for (const int64_t id : file.integers("eos_token_id")) {
      const int32_t eos = narrow(file, "eos_token_id", id);
      if (std::find(config.eos.begin(), config.eos.end(), eos) == config.eos.end()) config.eos.push_back(eos);
    }
  };
  read_ends(root);
  if (std::filesystem::exists(generation_json)) read_ends(JsonSection(generation_json));
}

/// The description of the text's part in the file of a model that sees, where the family names tensors as such models
/// do; else the whole file.
JsonSection text_section(const JsonSection& whole) {
  if (!whole.has("text_config")) return whole;
  const JsonSection text = whole.section("text_config");
  const auto family = std::ranges::find_if(
      architectures(), [&](const Architecture* one) { return one->name == text.string("model_type", ""); });
  return family != architectures().end() && (*family)->tensors.layer != TensorNames{}.layer ? text : whole;
}

/// Throws UserError for a key that would change results and that no pass here heeds.
void refuse_unheeded(const JsonSection& root, const Architecture& architecture) {
  if (root.has("quantization_config") &&
      (architecture.quantised.empty() ||
       root.section("quantization_config").string("quant_method", "") != architecture.quantised)) {
    fail({.place = root.place() + ": quantization_config",
          .found = "weights that are quantised in the checkpoint's own way",
          .expected = "weights of floats",
          .action = "bring the checkpoint before quantisation, or a GGUF file of it"});
  }
  if (architecture.rotary_share > 0) return;
  for (const JsonSection& section :
       root.has("rope_parameters") ? std::vector{root, root.section("rope_parameters")} : std::vector{root}) {
    if (const double share = section.number("partial_rotary_factor", 1.0); share != 1.0) {
      fail({.place = section.place() + ": partial_rotary_factor",
            .found = fmt::to_string(share),
            .expected = fmt::format("1: a {} rotates whole heads", architecture.name)});
    }
  }
}

}  // namespace

ModelConfig read_hf_config(const std::filesystem::path& config_json) {
  const JsonSection whole(config_json);
  const JsonSection root = text_section(whole);
  const Architecture& architecture =
      find_architecture(root.place() + ": model_type", root.string("model_type"), &Architecture::name);
  refuse_unheeded(root, architecture);
  ModelConfig config;
  config.architecture = architecture.name;
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
  const bool sparse = !root.has("intermediate_size") && root.has("moe_intermediate_size");  // in all layers
  config.intermediate_size = root.integer(sparse ? "moe_intermediate_size" : "intermediate_size");
  config.vocab_size = root.integer("vocab_size");
  config.max_position = root.integer("max_position_embeddings");
  config.rms_norm_eps = root.number("rms_norm_eps");
  config.tie_embeddings = root.boolean("tie_word_embeddings", whole.boolean("tie_word_embeddings", false));
  config.dtype = read_dtype(root.has("dtype") || root.has("torch_dtype") ? root : whole);
  if (const std::string activation = root.string("hidden_act", "silu"); activation != "silu") {
    fail({.place = root.place() + ": hidden_act", .found = activation, .expected = "silu"});
  }
  read_rope(root, architecture, config);
  architecture.read(root, config);
  extend_window(config);
  read_special_ids(root, config_json.parent_path() / "generation_config.json", config);
  check_config(config, root.place());
  return config;
}

}  // namespace kvarena
