// The tiny models of tests/golden/architectures as GGUF files, written the way converters write them, against the same
// logits.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "harness/core/error.h"
#include "harness/model/gguf.h"
#include "harness/model/split_checkpoint.h"
#include "tests/harness/model/gguf_writer.h"
#include "tests/harness/model/model_files.h"
#include "tests/support/golden_rows.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::GgufWriter;
using testing::GoldenModel;
using Values = std::vector<float>;

/// Stored forms of the matrices between latent and heads: kv_b, in newer files k_b and v_b, in some all three. Of the
/// rows of a recurrent layer: ssm_in, in newer files attn_qkv and attn_gate.
enum class Expansion { whole, split, both };

struct Case {
  std::string name;          // name of this case: the model, and the file's peculiarity
  std::string model;         // a fixture
  std::string architecture;  // the format's word
  Expansion expansion = Expansion::whole;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }
std::vector<Case> cases() {
  return {{"llama2", "llama2", "llama"},
          {"yi", "yi", "llama"},
          {"llama_biased", "llama_biased", "llama"},
          {"longchat_linear", "longchat_linear", "llama"},
          {"llama31", "llama31", "llama"},
          {"llama_yarn", "llama_yarn", "llama"},
          {"mistral", "mistral", "llama"},
          {"mistral_small", "mistral_small", "llama"},
          {"qwen2", "qwen2", "qwen2"},
          {"qwen3", "qwen3", "qwen3"},
          {"qwen3_moe", "qwen3_moe", "qwen3moe"},
          {"gemma3", "gemma3", "gemma3"},
          {"gpt_oss", "gpt_oss", "gpt-oss"},
          {"phi3", "phi3", "phi3"},
          {"phi3_crossing", "phi3_crossing", "phi3"},
          {"phi4_mini", "phi4_mini", "phi3"},
          {"glm4", "glm4", "glm4"},
          {"granite", "granite", "granite"},
          {"mixtral", "mixtral", "llama"},
          {"smollm3", "smollm3", "smollm3"},
          {"olmo2", "olmo2", "olmo2"},
          {"llama4_mixed", "llama4_mixed", "llama4"},
          {"qwen3_next", "qwen3_next", "qwen3next"},
          {"qwen3_next_split", "qwen3_next", "qwen3next", Expansion::split},
          {"deepseek_v2_lite", "deepseek_v2_lite", "deepseek2"},
          {"deepseek_v3", "deepseek_v3", "deepseek2"},
          {"deepseek_v3_split", "deepseek_v3", "deepseek2", Expansion::split},
          {"deepseek_v3_both", "deepseek_v3", "deepseek2", Expansion::both}};
}

/// The reference's names (tests/golden/model/tensor_names.json has those of layer 0), turned around.
std::string gguf_name(const std::string& name, const std::string& architecture) {
  json table = json::parse(read_file(testing::golden_file("tensor_names.json")));
  table["families"]["gemma3"] = table["gemma3_names"];
  std::map<std::string, std::string> stems{
      {"model.layers.0.block_sparse_moe.gate.weight", "blk.0.ffn_gate_inp.weight"}};
  const bool apart = table["families"].contains(architecture);
  for (const auto& [gguf, canonical] : (apart ? table["families"][architecture] : table["names"]).items()) {
    stems[canonical.get<std::string>()] = gguf;
  }
  const std::string layers = "model.layers.";
  const size_t ending = name.rfind('.');
  if (!name.starts_with(layers)) return stems.at(name);
  const size_t dot = name.find('.', layers.size());
  const std::string layer = name.substr(layers.size(), dot - layers.size());
  if (name.ends_with("self_attn.sinks")) return "blk." + layer + ".attn_sinks.weight";
  if (name.ends_with("linear_attn.A_log")) return "blk." + layer + ".ssm_a";
  if (name.ends_with("linear_attn.dt_bias")) return "blk." + layer + ".ssm_dt.bias";
  if (name.ends_with("e_score_correction_bias")) return "blk." + layer + ".exp_probs_b.bias";
  const std::string found = stems.at(layers + "0" + name.substr(dot, ending - dot) + ".weight");  // blk.0.attn_q.weight
  return "blk." + layer + found.substr(5, found.rfind('.') - 5) + name.substr(ending);
}

/// llama.cpp's converter puts the two channels of a rotation pair side by side.
Values paired(const Values& rows, int64_t heads, const std::vector<int64_t>& shape) {
  const int64_t columns = shape.size() > 1 ? shape[1] : 1;
  const int64_t half = shape[0] / heads / 2;
  Values out(rows.size());
  for (int64_t row = 0; row < shape[0]; ++row) {
    const int64_t in_head = row % (2 * half);
    const int64_t to = row - in_head + 2 * (in_head % half) + in_head / half;
    std::copy_n(rows.begin() + row * columns, columns, out.begin() + to * columns);
  }
  return out;
}

class Converter {
 public:
  Converter(const GoldenModel& model, const Case& kind)
      : model_(model), kind_(kind), checkpoint_(model.checkpoint()), prefix_(kind.architecture + ".") {}

  void write(const std::filesystem::path& path) {
    describe();
    describe_rope();
    if (model_.config.expert.experts > 0) describe_experts();
    if (model_.config.is_latent()) describe_latent();
    if (!model_.config.recurrent_layers.empty()) describe_states();
    if (model_.config.rotary_dim() < model_.config.head_dim && !model_.config.is_latent()) {
      integer("rope.dimension_count", model_.config.rotary_dim());
    }
    if (kind_.architecture == "granite") describe_scales();
    // Experts are files' own stacks in either format: they are cut before they are stacked again.
    const SplitCheckpoint split(checkpoint_, model_.config);
    const Checkpoint& from = model_.config.expert.experts > 0 ? static_cast<const Checkpoint&>(split) : checkpoint_;
    for (const TensorInfo& info : from.tensors()) convert(from, info);
    for (const auto& [name, stack] : stacks_) writer_.tensor(name, stack.shape, stack.values);
    writer_.write(path);
  }

 private:
  struct Stack {
    std::vector<int64_t> shape;
    Values values;
  };

  void integer(const char* key, int64_t value) { writer_.integer(prefix_ + key, value); }
  void real(const char* key, double value) { writer_.real(prefix_ + key, value); }

  void describe() {
    const ModelConfig& c = model_.config;
    writer_.text("general.architecture", kind_.architecture);
    integer("block_count", c.layers);
    integer("context_length", c.max_position);
    integer("embedding_length", c.hidden_size);
    integer("feed_forward_length", c.intermediate_size);
    integer("attention.head_count", c.q_heads);
    integer("vocab_size", c.vocab_size);
    real("attention.layer_norm_rms_epsilon", c.rms_norm_eps);
    real("rope.freq_base", c.rope_theta);
    if (c.sliding_window > 0) integer("attention.sliding_window", c.sliding_window);
    if (c.is_latent()) return;
    integer("attention.head_count_kv", c.kv_heads);
    integer("attention.key_length", c.head_dim);
    integer("attention.value_length", c.head_dim);
  }

  void describe_rope() {
    const RopeScaling& scaling = model_.config.rope_scaling;
    if (scaling.type == RopeScaling::Type::linear || scaling.type == RopeScaling::Type::yarn) {
      writer_.text(prefix_ + "rope.scaling.type", to_string(scaling.type));
      real("rope.scaling.factor", scaling.factor);
      integer("rope.scaling.original_context_length", scaling.original_max_position);
    }
    if (scaling.type == RopeScaling::Type::longrope) {
      integer("rope.scaling.original_context_length", scaling.original_max_position);
      real("rope.scaling.attn_factor", static_cast<double>(rope_frequencies(model_.config).magnitude));
      const auto size = std::ssize(scaling.long_factors);
      writer_.tensor("rope_factors_long.weight", {size}, scaling.long_factors);
      writer_.tensor("rope_factors_short.weight", {size}, scaling.frequency_factors);
    }
    if (scaling.mscale_all_dim > 0) real("rope.scaling.yarn_log_multiplier", 0.1 * scaling.mscale_all_dim);
    if (scaling.type != RopeScaling::Type::llama3) return;
    // The converter stores what each plain frequency is divided by.
    ModelConfig plain = model_.config;
    plain.rope_scaling.type = RopeScaling::Type::none;
    const std::vector<double> before = rope_frequencies(plain).inverse;
    const std::vector<double> after = rope_frequencies(model_.config).inverse;
    Values factors;
    for (size_t i = 0; i < before.size(); ++i) factors.push_back(static_cast<float>(before[i] / after[i]));
    writer_.tensor("rope_freqs.weight", {static_cast<int64_t>(factors.size())}, factors);
  }

  void describe_experts() {
    const ExpertConfig& e = model_.config.expert;
    integer("expert_count", e.experts);
    integer("expert_used_count", e.experts_per_token);
    integer("expert_feed_forward_length", e.intermediate_size);
    if (kind_.architecture == "llama4") {
      integer("interleave_moe_layer_step", model_.fixture["config"]["interleave_moe_layer_step"].get<int64_t>());
    }
    if (!model_.config.is_latent()) return;
    integer("expert_shared_count", e.shared_experts);
    integer("leading_dense_block_count", e.first_sparse_layer);
    integer("expert_gating_func", e.sigmoid_scores ? 2 : 1);
    integer("expert_group_count", e.groups);
    integer("expert_group_used_count", e.groups_per_token);
    real("expert_weights_scale", e.weight_scale);
    writer_.boolean(prefix_ + "expert_weights_norm", e.normalize_weights);
  }

  void describe_scales() {
    const json& stored = model_.fixture["config"];
    real("embedding_scale", stored["embedding_multiplier"].get<double>());
    real("residual_scale", stored["residual_multiplier"].get<double>());
    real("logit_scale", stored["logits_scaling"].get<double>());
    real("attention.scale", stored["attention_multiplier"].get<double>());
  }

  void describe_states() {
    const DeltaRuleConfig& delta = model_.config.delta;
    integer("ssm.conv_kernel", delta.taps);
    integer("ssm.state_size", delta.k_dim);
    integer("ssm.group_count", delta.k_heads);
    integer("ssm.time_step_rank", delta.v_heads);
    integer("ssm.inner_size", delta.values());
    integer("full_attention_interval", model_.config.layers);
    integer("expert_shared_feed_forward_length", model_.config.expert.shared_intermediate_size);
  }

  void describe_latent() {
    const LatentAttentionConfig& latent = model_.config.latent;
    integer("attention.kv_lora_rank", latent.kv_lora_rank);
    if (latent.q_lora_rank > 0) integer("attention.q_lora_rank", latent.q_lora_rank);
    integer("rope.dimension_count", latent.rope_head_dim);
    const char* ending = kind_.expansion != Expansion::whole ? "_mla" : "";
    integer((std::string("attention.key_length") + ending).c_str(), model_.config.head_dim);
    integer((std::string("attention.value_length") + ending).c_str(), latent.v_head_dim);
    integer("attention.head_count_kv", kind_.expansion != Expansion::whole ? 1 : model_.config.q_heads);
    if (kind_.expansion == Expansion::whole) return;
    integer("attention.key_length", latent.kv_lora_rank + latent.rope_head_dim);
    integer("attention.value_length", latent.kv_lora_rank);
  }

  void convert(const Checkpoint& from, const TensorInfo& info) {
    Values values(static_cast<size_t>(info.elements()));
    from.read_f32(info.name, values);
    const std::string experts = "experts.";
    if (const size_t at = info.name.find(experts); at != std::string::npos && info.name.find("shared") > at) {
      const size_t dot = info.name.find('.', at + experts.size());
      const std::string stem = info.name.substr(dot + 1, info.name.rfind('.') - dot - 1);
      const std::string part = stem == "gate_proj" || stem == "w1" ? "gate"
                               : stem == "up_proj" || stem == "w3" ? "up"
                                                                   : "down";
      const std::string layer = info.name.substr(13, info.name.find('.', 13) - 13);
      Stack& stack = stacks_["blk." + layer + ".ffn_" + part + "_exps" + info.name.substr(info.name.rfind('.'))];
      const int64_t held = stack.shape.empty() ? 0 : stack.shape[0];
      stack.shape = info.shape;
      stack.shape.insert(stack.shape.begin(), held + 1);
      stack.values.insert(stack.values.end(), values.begin(), values.end());  // fewer than ten: sorted by number
      return;
    }
    if (kind_.expansion != Expansion::whole && info.name.ends_with("in_proj_qkvz.weight")) {
      return split_rows(info, values);
    }
    if (kind_.expansion != Expansion::whole && info.name.ends_with("kv_b_proj.weight")) {
      split(info, values);
      if (kind_.expansion == Expansion::split) return;
    }
    if (kind_.architecture == "llama" || kind_.architecture == "granite" || kind_.architecture == "smollm3") {
      if (info.name.find("q_proj") != std::string::npos) values = paired(values, model_.config.q_heads, info.shape);
      if (info.name.find("k_proj") != std::string::npos) values = paired(values, model_.config.kv_heads, info.shape);
    }
    const bool recurrent = info.name.find("linear_attn.") != std::string::npos;
    if (model_.config.norms_less_one && info.shape.size() == 1 && !recurrent) {
      for (float& weight : values) weight += 1;
    }
    if (info.name.ends_with("A_log")) {
      for (float& weight : values) weight = -std::exp(weight);
    }
    std::vector<int64_t> shape = info.shape;
    if (recurrent || info.name.ends_with("shared_expert_gate.weight")) std::erase(shape, 1);
    writer_.tensor(gguf_name(info.name, kind_.architecture), shape, values);
  }

  /// Queries, keys, values and gates of each key head as all queries, all keys, all values, and gates by themselves.
  void split_rows(const TensorInfo& info, const Values& values) {
    const DeltaRuleConfig& delta = model_.config.delta;
    const int64_t columns = info.shape[1], k = delta.k_dim, v = delta.values() / delta.k_heads;
    Values queries, keys, of_values, gates;
    auto from = values.begin();
    for (int64_t head = 0; head < delta.k_heads; ++head) {
      for (const auto& [to, rows] : {std::pair{&queries, k}, {&keys, k}, {&of_values, v}, {&gates, v}}) {
        to->insert(to->end(), from, from + rows * columns);
        from += rows * columns;
      }
    }
    queries.insert(queries.end(), keys.begin(), keys.end());
    queries.insert(queries.end(), of_values.begin(), of_values.end());
    const std::string name = gguf_name(info.name, kind_.architecture);
    const std::string base = name.substr(0, name.find("ssm_in"));
    writer_.tensor(base + "attn_qkv.weight", {delta.channels(), columns}, queries);
    writer_.tensor(base + "attn_gate.weight", {delta.values(), columns}, gates);
  }

  /// kv_b [heads * (nope + v), rank] as k_b [heads, rank, nope] and v_b [heads, v, rank].
  void split(const TensorInfo& info, const Values& values) {
    const LatentAttentionConfig& latent = model_.config.latent;
    const int64_t heads = model_.config.q_heads;
    const int64_t rank = latent.kv_lora_rank;
    Values keys;
    Values of_values;
    for (int64_t head = 0; head < heads; ++head) {
      const auto rows = values.begin() + head * (latent.nope_head_dim + latent.v_head_dim) * rank;
      for (int64_t c = 0; c < rank; ++c) {
        for (int64_t i = 0; i < latent.nope_head_dim; ++i) keys.push_back(rows[i * rank + c]);
      }
      of_values.insert(of_values.end(), rows + latent.nope_head_dim * rank,
                       rows + (latent.nope_head_dim + latent.v_head_dim) * rank);
    }
    const std::string name = gguf_name(info.name, kind_.architecture);
    const std::string base = name.substr(0, name.find("attn_"));
    writer_.tensor(base + "attn_k_b.weight", {heads, rank, latent.nope_head_dim}, keys);
    writer_.tensor(base + "attn_v_b.weight", {heads, latent.v_head_dim, rank}, of_values);
  }

  const GoldenModel& model_;
  const Case& kind_;
  testing::RandomCheckpoint checkpoint_;
  std::string prefix_;
  GgufWriter writer_;
  std::map<std::string, Stack> stacks_;
};

class GgufArchitectures : public ::testing::TestWithParam<Case> {};

TEST_P(GgufArchitectures, GivesTheLogitsOfTheReferenceLibrary) {
  const std::string& name = GetParam().model;
  const GoldenModel golden = testing::golden_model(name);
  const testing::TemporaryFolder folder;
  Converter(golden, GetParam()).write(folder.path() / "model.gguf");

  const auto file = std::make_shared<const GgufFile>(folder.path() / "model.gguf");
  const ModelConfig config = read_gguf_config(*file);
  if (name.find("mistral") == std::string::npos && name != "mixtral") {
    EXPECT_EQ(config.architecture, golden.config.architecture);
  }
  EXPECT_EQ(config.max_position, golden.config.max_position);
  Transformer model(config, *open_gguf_checkpoint(file), testing::kExact);
  testing::GoldenRows rows(golden.fixture, model);
  KvCache cache = model.make_cache();
  cache.prompt_length = std::ssize(rows.tokens("prompt"));
  rows.feed(cache, rows.tokens("prompt"));
  for (const int32_t token : rows.tokens("next")) rows.feed(cache, {&token, 1});
  EXPECT_TRUE(rows.all_compared());
}

INSTANTIATE_TEST_SUITE_P(All, GgufArchitectures, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(GgufConfig, FrequencyFactorsOfAnotherHeadSizeAreRefused) {
  const testing::TemporaryFolder folder;
  GgufWriter writer;
  writer.text("general.architecture", "llama").integer("llama.block_count", 1).integer("llama.context_length", 64);
  writer.integer("llama.embedding_length", 64).integer("llama.feed_forward_length", 64);
  writer.integer("llama.attention.head_count", 2).integer("llama.vocab_size", 8);
  writer.real("llama.attention.layer_norm_rms_epsilon", 1e-5).tensor("rope_freqs.weight", {3}, Values(3, 1.0F));
  writer.write(folder.path() / "bad.gguf");
  try {
    (void)read_gguf_config(GgufFile(folder.path() / "bad.gguf"));
    FAIL() << "accepted";
  } catch (const UserError& error) {
    for (const char* word : {"bad.gguf", "3 rope frequency factors", "16, half of a head's rotated channels"}) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace kvarena
