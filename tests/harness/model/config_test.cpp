// Model descriptions: the keys of each family, and errors that name file and key.

#include "harness/model/config.h"

#include <gtest/gtest.h>

#include "harness/core/error.h"
#include "tests/harness/model/model_files.h"

namespace kvarena {
namespace {

using nlohmann::json;

/// A small Llama; each test changes what it is about.
json llama() {
  return {{"model_type", "llama"},    {"num_hidden_layers", 4},    {"hidden_size", 64},
          {"num_attention_heads", 8}, {"num_key_value_heads", 2},  {"intermediate_size", 128},
          {"vocab_size", 1000},       {"rms_norm_eps", 1e-5},      {"max_position_embeddings", 4096},
          {"rope_theta", 500000.0},   {"torch_dtype", "bfloat16"}, {"hidden_act", "silu"}};
}

ModelConfig read(const json& content) {
  const testing::TemporaryFolder folder;
  return read_hf_config(folder.write("config.json", content.dump()));
}

ModelConfig with(const json& changes) {
  json content = llama();
  content.update(changes);
  return read(content);
}

void expect_error(const json& content, const std::vector<std::string>& words) {
  try {
    (void)read(content);
    FAIL() << "accepted: " << content;
  } catch (const UserError& error) {
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << " in: " << error.what();
    }
  }
}

TEST(ModelConfig, ReadsALlama) {
  const ModelConfig config = read(llama());
  EXPECT_EQ(config.layers, 4);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.group(), 4);
  EXPECT_EQ(config.rope_theta, 500000.0);
  EXPECT_EQ(config.rope_scaling.type, RopeScaling::Type::none);
  EXPECT_EQ(config.dtype, kernels::DType::bf16);
  EXPECT_FALSE(config.tie_embeddings || config.qkv_bias || config.qk_norm || config.bos || config.sliding_window > 0);
}

TEST(ModelConfig, HeadSizeMayStandApartFromHiddenSize) {
  EXPECT_EQ(with({{"model_type", "mistral"}, {"head_dim", 32}}).head_dim, 32);
  EXPECT_EQ(with({{"head_dim", nullptr}}).head_dim, 8);
}

TEST(ModelConfig, FamiliesDifferInBiasesAndNorms) {
  const ModelConfig qwen2 = with({{"model_type", "qwen2"}, {"tie_word_embeddings", true}});
  EXPECT_TRUE(qwen2.qkv_bias && qwen2.tie_embeddings && !qwen2.output_bias && !qwen2.qk_norm);
  const ModelConfig qwen3 = with({{"model_type", "qwen3"}, {"head_dim", 16}});
  EXPECT_TRUE(qwen3.qk_norm && !qwen3.qkv_bias);
  const ModelConfig biased = with({{"attention_bias", true}, {"mlp_bias", true}});
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias && biased.mlp_bias);
}

/// A Qwen3.5 of the small Llama's sizes.
json qwen35() {
  json content = llama();
  content.update({{"model_type", "qwen3_5_text"},
                  {"head_dim", 32},
                  {"linear_num_key_heads", 2},
                  {"linear_num_value_heads", 4},
                  {"linear_key_head_dim", 16},
                  {"linear_value_head_dim", 24}});
  return content;
}

TEST(ModelConfig, RecurrentLayersAreAllButTheLastOfEachInterval) {
  const ModelConfig config = read(qwen35());
  EXPECT_EQ(config.recurrent_layers, (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(config.cached_layers(), 1);
  EXPECT_EQ(config.rotary_dim(), 8);
  EXPECT_EQ(config.delta.channels(), 2 * 2 * 16 + 4 * 24);
  EXPECT_TRUE(config.output_gate && config.qk_norm && config.norms_less_one && !config.qkv_bias);
  EXPECT_EQ(read(llama()).cached_layers(), 4);
  json content = qwen35();
  content["full_attention_interval"] = 2;
  EXPECT_EQ(read(content).cached_layers(), 2);
  content["layer_types"] = {"full_attention", "linear_attention", "full_attention", "full_attention"};
  EXPECT_EQ(read(content).recurrent_layers, (std::vector<bool>{false, true, false, false}));
}

TEST(ModelConfig, RecurrentLayersThatCannotBeAreRefused) {
  const auto refused = [](const json& changes, const std::vector<std::string>& words) {
    json content = qwen35();
    content.update(changes);
    expect_error(content, words);
  };
  refused({{"linear_num_key_heads", 3}}, {"3 heads of 16", "whole numbers of value heads"});
  refused({{"linear_conv_kernel_dim", 17}}, {"17 tokens convolved", "at most 16"});
  refused({{"full_attention_interval", 5}}, {"linear attention in all layers"});
  refused({{"full_attention_interval", 0}}, {"full_attention_interval", "a number of layers"});
  refused({{"layer_types", {"full_attention"}}}, {"layer_types", "each of 4 layers"});
  refused({{"layer_types", {"full_attention", "mamba", "full_attention", "full_attention"}}}, {"layer_types"});
  json without = qwen35();
  without.erase("linear_key_head_dim");
  expect_error(without, {"linear_key_head_dim"});
}

TEST(ModelConfig, AModelThatSeesHasItsTextsDescriptionInASection) {
  json text = qwen35();
  text.erase("torch_dtype");
  const ModelConfig config =
      read({{"model_type", "qwen3_5"}, {"text_config", text}, {"tie_word_embeddings", true}, {"dtype", "bfloat16"}});
  EXPECT_EQ(config.architecture, "qwen3_5_text");
  EXPECT_EQ(config.cached_layers(), 1);
  EXPECT_TRUE(config.tie_embeddings);
  EXPECT_EQ(config.dtype, kernels::DType::bf16);
  // Another family's text goes by other names of tensors there.
  expect_error({{"model_type", "gemma3"}, {"text_config", {{"model_type", "gemma3_text"}}}},
               {"\"gemma3\"", "the nearest is gemma3_text; "});
}

TEST(ModelConfig, SlidingWindowsHoldWhereTheFamilySays) {
  const ModelConfig mistral = with({{"model_type", "mistral"}, {"sliding_window", 1024}});
  EXPECT_TRUE(mistral.sliding_window == 1024 && mistral.is_sliding_layer(0));
  EXPECT_EQ(with({{"model_type", "mistral"}, {"sliding_window", nullptr}}).sliding_window, 0);
  EXPECT_EQ(with({{"model_type", "qwen2"}, {"sliding_window", 1024}, {"use_sliding_window", false}}).sliding_window, 0);
  const ModelConfig qwen =
      with({{"model_type", "qwen2"}, {"sliding_window", 1024}, {"use_sliding_window", true}, {"max_window_layers", 3}});
  EXPECT_TRUE(qwen.sliding_window == 1024 && !qwen.is_sliding_layer(2) && qwen.is_sliding_layer(3));
}

TEST(ModelConfig, LayerTypesSayWhichLayersSlide) {
  const json types = {"full_attention", "sliding_attention", "full_attention", "sliding_attention"};
  const json sliding = {
      {"model_type", "qwen3"}, {"sliding_window", 1024}, {"use_sliding_window", true}, {"layer_types", types}};
  const ModelConfig config = with(sliding);
  EXPECT_TRUE(!config.is_sliding_layer(0) && config.is_sliding_layer(1) && !config.is_sliding_layer(2));
  json content = llama();
  content.update(sliding);
  content["layer_types"].push_back("full_attention");
  expect_error(content, {"layer_types", "each of 4 layers"});
  content["layer_types"] = {"full_attention", "linear_attention", "full_attention", "full_attention"};
  expect_error(content, {"layer_types", "full_attention or sliding_attention"});
}

json gemma() {
  json content = llama();
  for (const char* other : {"hidden_act", "rope_theta"}) content.erase(other);
  content.update({{"model_type", "gemma3_text"}, {"num_hidden_layers", 7}, {"head_dim", 16}, {"sliding_window", 512}});
  return content;
}

TEST(ModelConfig, ReadsAGemma3) {
  const ModelConfig config = read(gemma());
  EXPECT_EQ(config.embedding_scale, 8);
  EXPECT_TRUE(config.output_norms && config.norms_less_one && config.gelu && config.qk_norm && config.tie_embeddings &&
              !config.qkv_bias);
  EXPECT_EQ(config.query_scalar, 256);
  EXPECT_EQ(config.logit_cap, 0);
  EXPECT_EQ(config.sliding_window, 512);
  EXPECT_EQ(config.sliding_layers, (std::vector<bool>{true, true, true, true, true, false, true}));
  EXPECT_EQ(config.rope_theta, 1e6);
  EXPECT_EQ(config.sliding_rope_theta, 1e4);
  EXPECT_TRUE(config.has_own_rotation(0) && !config.has_own_rotation(5));
}

TEST(ModelConfig, ReadsBothFormsOfGemmasRotations) {
  json older = gemma();
  older.update({{"rope_theta", 2e6},
                {"rope_local_base_freq", 3e4},
                {"sliding_window_pattern", 2},
                {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                {"final_logit_softcapping", 30.0}});
  json newer = gemma();
  newer["layer_types"] = json::array();
  for (int layer = 0; layer < 7; ++layer)
    newer["layer_types"].push_back(layer % 2 == 0 ? "sliding_attention" : "full_attention");
  newer["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 2e6}}},
                              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 3e4}}}};
  newer["final_logit_softcapping"] = 30.0;
  for (const json& form : {older, newer}) {
    const ModelConfig config = read(form);
    EXPECT_EQ(config.rope_theta, 2e6);
    EXPECT_EQ(config.sliding_rope_theta, 3e4);
    EXPECT_TRUE(config.rope_scaling.type == RopeScaling::Type::linear && config.rope_scaling.factor == 8.0);
    EXPECT_EQ(config.sliding_layers, (std::vector<bool>{true, false, true, false, true, false, true}));
    EXPECT_EQ(config.logit_cap, 30.0);
  }
}

TEST(ModelConfig, WhatNoPassOfGemmaHeedsIsRefused) {
  const auto changed = [](const json& changes) {
    json copy = gemma();
    copy.update(changes);
    return copy;
  };
  expect_error(changed({{"attn_logit_softcapping", 50.0}}), {"attn_logit_softcapping: found 50.0", "no cap of scores"});
  expect_error(changed({{"use_bidirectional_attention", true}}), {"use_bidirectional_attention: found true"});
  expect_error(changed({{"hidden_activation", "gelu"}}), {"hidden_activation: found \"gelu\"", "gelu_pytorch_tanh"});
  expect_error(changed({{"sliding_window_pattern", 0}}), {"sliding_window_pattern: found 0"});
  expect_error(changed({{"query_pre_attn_scalar", -1}}), {"query scale -1"});
  expect_error(changed({{"rope_local_base_freq", 0}}), {"rope_theta"});
  json scaled = gemma();
  scaled["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}}},
                               {"sliding_attention", {{"rope_type", "linear"}, {"factor", 2.0}}}};
  expect_error(scaled, {"sliding_attention: rope_type: found \"linear\""});
}

json gpt_oss() {
  json content = llama();
  content.update(
      {{"model_type", "gpt_oss"}, {"sliding_window", 128}, {"num_local_experts", 8}, {"num_experts_per_tok", 2}});
  return content;
}

TEST(ModelConfig, ReadsAGptOss) {
  json content = gpt_oss();
  content["quantization_config"] = {{"quant_method", "mxfp4"}};
  const ModelConfig config = read(content);
  EXPECT_TRUE(config.attention_sinks && config.qkv_bias && config.output_bias && config.expert.biases &&
              config.expert.normalize_weights && !config.expert.sigmoid_scores);
  EXPECT_EQ(config.gate_limit, 7);
  EXPECT_EQ(config.expert.intermediate_size, 128);
  EXPECT_EQ(config.sliding_layers, (std::vector<bool>{true, false, true, false}));
  const auto changed = [](const json& changes) {
    json copy = gpt_oss();
    copy.update(changes);
    return copy;
  };
  expect_error(changed({{"swiglu_alpha", 1.0}}), {"swiglu_alpha: found 1.0, expected 1.702"});
  expect_error(changed({{"swiglu_limit", 0}}), {"swiglu_limit: found 0"});
  expect_error(changed({{"quantization_config", {{"quant_method", "fp8"}}}}), {"quantization_config", "GGUF"});
}

TEST(ModelConfig, ReadsLongRopeAndPartsOfHeads) {
  const json factors = {{"type", "longrope"}, {"short_factor", {1.0, 1.5, 2.0}}, {"long_factor", {1.0, 4.0, 9.0}}};
  const ModelConfig phi = with({{"model_type", "phi3"},
                                {"partial_rotary_factor", 0.75},
                                {"original_max_position_embeddings", 1024},
                                {"rope_scaling", factors}});
  EXPECT_TRUE(phi.rotary_dim() == 6 && phi.turned_dim() == 8 && !phi.rope_interleaved);
  EXPECT_TRUE(phi.rope_scaling.by_length() && phi.rope_scaling.factor == 4);
  EXPECT_EQ(phi.rope_scaling.original_max_position, 1024);
  EXPECT_EQ(phi.rope_scaling.long_factors, (std::vector<float>{1, 4, 9}));
  EXPECT_EQ(phi.max_position, 4096);
  json content = llama();
  content.update({{"model_type", "phi3"}, {"rope_scaling", factors}});
  expect_error(content, {"3 rope frequency factors", "4, half of a head's rotated channels"});
  content["rope_scaling"]["short_factor"] = {1.0, -1.0, 1.0, 1.0};
  expect_error(content, {"rope_scaling: short_factor", "positive ones"});
  const ModelConfig glm = with({{"model_type", "glm4"}});
  EXPECT_TRUE(glm.rotary_dim() == 4 && glm.rope_interleaved && glm.output_norms && glm.qkv_bias);
}

TEST(ModelConfig, ReadsGranitesFactors) {
  const json factors = {{"model_type", "granite"},
                        {"embedding_multiplier", 12},
                        {"residual_multiplier", 0.25},
                        {"attention_multiplier", 0.5},
                        {"logits_scaling", 8}};
  const ModelConfig config = with(factors);
  EXPECT_TRUE(config.embedding_scale == 12 && config.residual_scale == 0.25 && config.logit_scale == 0.125);
  EXPECT_EQ(config.query_scalar, 4);
  json content = llama();
  content.update(factors);
  content["attention_multiplier"] = 0;
  expect_error(content, {"a factor 0 on scores"});
  content.update({{"attention_multiplier", 1}, {"logits_scaling", 0}});
  expect_error(content, {"inf on logits"});
}

TEST(ModelConfig, ReadsWhichLayersAreNotRotated) {
  const ModelConfig usual = with({{"model_type", "smollm3"}});
  EXPECT_TRUE(usual.is_rotated(0) && usual.is_rotated(2) && !usual.is_rotated(3) && usual.tie_embeddings);
  const ModelConfig listed = with({{"model_type", "smollm3"}, {"no_rope_layers", {1, 0, 1, 1}}});
  EXPECT_TRUE(!listed.is_rotated(1) && listed.has_own_rotation(1) && listed.is_rotated(3));
  json content = llama();
  content.update({{"model_type", "smollm3"}, {"no_rope_layers", {1, 0}}});
  expect_error(content, {"no_rope_layers", "each of 4 layers"});
  content.update({{"no_rope_layers", nullptr}, {"no_rope_layer_interval", 0}});
  expect_error(content, {"no_rope_layer_interval: found 0"});
}

TEST(ModelConfig, ReadsALlama4) {
  const json keys = {{"model_type", "llama4_text"},
                     {"num_local_experts", 16},
                     {"intermediate_size_mlp", 256},
                     {"attention_chunk_size", 512},
                     {"interleave_moe_layer_step", 2}};
  const ModelConfig config = with(keys);
  EXPECT_TRUE(config.chunked_window && config.rope_interleaved && config.unit_qk_norm && !config.qk_norm);
  EXPECT_TRUE(config.expert.weighted_inputs && config.expert.sigmoid_scores && !config.expert.correction);
  EXPECT_TRUE(config.sliding_window == 512 && config.is_sliding_layer(2) && !config.is_sliding_layer(3));
  EXPECT_TRUE(!config.is_sparse_layer(0) && config.is_sparse_layer(1) && config.intermediate_size == 256);
  EXPECT_TRUE(config.expert.intermediate_size == 128 && config.expert.shared_intermediate_size == 128);
  EXPECT_TRUE(config.temperature == 0.1 && config.temperature_step == 8192);
  json content = llama();
  content.update(keys);
  content["moe_layers"] = {0, 3};
  EXPECT_TRUE(read(content).is_sparse_layer(0) && !read(content).is_sparse_layer(1));
  content["layer_types"] = {"chunked_attention", "full_attention", "full_attention", "sliding_attention"};
  expect_error(content, {"layer_types", "full_attention or chunked_attention"});
  content.update({{"layer_types", nullptr}, {"attn_temperature_tuning", false}});
  EXPECT_EQ(read(content).temperature, 0);
}

TEST(ModelConfig, NamesThoseFamiliesThatAreATable) {
  const ModelConfig olmo = with({{"model_type", "olmo2"}});
  EXPECT_TRUE(olmo.qk_norm && olmo.qk_norm_whole && !olmo.input_norms && olmo.output_norms);
  const ModelConfig mixtral = with({{"model_type", "mixtral"}, {"num_local_experts", 8}, {"num_experts_per_tok", 2}});
  EXPECT_TRUE(mixtral.expert.experts == 8 && mixtral.expert.normalize_weights && mixtral.is_sparse_layer(0));
}

TEST(ModelConfig, TheWindowReachesAsFarAsScalingDoes) {
  const auto window = [](const json& scaling) { return with({{"rope_scaling", scaling}}).max_position; };
  EXPECT_EQ(window({{"type", "linear"}, {"factor", 8.0}}), 4096);
  EXPECT_EQ(window({{"type", "dynamic"}, {"factor", 8.0}}), 32768);
  EXPECT_EQ(window({{"type", "yarn"}, {"factor", 4.0}}), 16384);
  EXPECT_EQ(window({{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}}), 4096);
}

TEST(ModelConfig, ReadsEveryKindOfRopeScaling) {
  using Type = RopeScaling::Type;
  const auto rope = [](const json& scaling) { return with({{"rope_scaling", scaling}}).rope_scaling; };
  const RopeScaling linear = rope({{"type", "linear"}, {"factor", 8.0}});
  EXPECT_TRUE(linear.type == Type::linear && linear.factor == 8.0);
  const RopeScaling dynamic = rope({{"rope_type", "dynamic"}, {"factor", 2}});
  EXPECT_TRUE(dynamic.type == Type::dynamic && dynamic.original_max_position == 4096);
  const RopeScaling llama3 = rope({{"rope_type", "llama3"},
                                   {"factor", 32.0},
                                   {"low_freq_factor", 1.0},
                                   {"high_freq_factor", 4.0},
                                   {"original_max_position_embeddings", 2048}});
  EXPECT_TRUE(llama3.type == Type::llama3 && llama3.original_max_position == 2048 && llama3.factor == 32.0);
  const RopeScaling yarn = rope({{"type", "yarn"},
                                 {"factor", 40},
                                 {"original_max_position_embeddings", 512},
                                 {"beta_fast", 16},
                                 {"mscale", 0.707},
                                 {"mscale_all_dim", 0.5},
                                 {"attention_factor", 1.2}});
  EXPECT_TRUE(yarn.type == Type::yarn && yarn.beta_fast == 16 && yarn.beta_slow == 1 && yarn.mscale == 0.707);
  EXPECT_EQ(yarn.attention_factor, 1.2);
  EXPECT_EQ(rope({{"rope_type", "default"}}).type, Type::none);
  json newer = llama();
  newer.erase("rope_theta");
  newer["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 1234.0}};
  EXPECT_EQ(read(newer).rope_theta, 1234.0);
  EXPECT_EQ(read(newer).rope_scaling.type, Type::linear);
}

TEST(ModelConfig, ReadsExpertsAndLatentAttention) {
  const ModelConfig qwen = with({{"model_type", "qwen3_moe"},
                                 {"head_dim", 16},
                                 {"num_experts", 16},
                                 {"num_experts_per_tok", 4},
                                 {"moe_intermediate_size", 32},
                                 {"decoder_sparse_step", 2},
                                 {"mlp_only_layers", {3}},
                                 {"norm_topk_prob", true}});
  EXPECT_TRUE(qwen.expert.experts == 16 && qwen.expert.experts_per_token == 4 && qwen.expert.normalize_weights);
  EXPECT_TRUE(!qwen.is_sparse_layer(0) && qwen.is_sparse_layer(1) && !qwen.is_sparse_layer(3));
  const ModelConfig deepseek = with({{"model_type", "deepseek_v3"},
                                     {"num_key_value_heads", 8},
                                     {"kv_lora_rank", 32},
                                     {"q_lora_rank", 48},
                                     {"qk_nope_head_dim", 16},
                                     {"qk_rope_head_dim", 8},
                                     {"v_head_dim", 16},
                                     {"n_routed_experts", 8},
                                     {"num_experts_per_tok", 2},
                                     {"moe_intermediate_size", 24},
                                     {"n_shared_experts", 1},
                                     {"first_k_dense_replace", 1},
                                     {"routed_scaling_factor", 2.5},
                                     {"n_group", 4},
                                     {"topk_group", 2}});
  EXPECT_EQ(deepseek.head_dim, 24);
  EXPECT_EQ(deepseek.latent.kv_lora_rank, 32);
  EXPECT_TRUE(deepseek.rope_interleaved && deepseek.expert.sigmoid_scores && deepseek.expert.groups == 4);
  EXPECT_TRUE(!deepseek.is_sparse_layer(0) && deepseek.is_sparse_layer(1));
  EXPECT_EQ(deepseek.expert.shared_intermediate_size, 24);
}

TEST(ModelConfig, EndsOfSequenceComeFromBothFilesOnceEach) {
  const testing::TemporaryFolder folder;
  json content = llama();
  content["eos_token_id"] = 7;
  folder.write("generation_config.json", R"({"eos_token_id": [7, 9]})");
  EXPECT_EQ(read_hf_config(folder.write("config.json", content.dump())).eos, (std::vector<int32_t>{7, 9}));
}

TEST(ModelConfig, ErrorsNameFileAndKey) {
  json content = llama();
  content["model_type"] = "mamba";  // no slip for any
  expect_error(content,
               {"config.json: model_type: found \"mamba\", expected one of llama, mistral, mixtral, qwen2, qwen3, "
                "qwen3_moe, gemma3_text, deepseek_v2, deepseek_v3, gpt_oss, phi3, glm4, granite, smollm3, olmo2, "
                "llama4_text, qwen3_next, qwen3_5_text, qwen3_5_moe_text; the forward pass of another family differs"});
  for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size",
                          "rms_norm_eps", "max_position_embeddings", "model_type"}) {
    content = llama();
    content.erase(key);
    expect_error(content, {"config.json", key});
    content[key] = json::array({1});
    expect_error(content, {"config.json", key});
  }
  const auto changed = [](const json& changes) {
    json copy = llama();
    copy.update(changes);
    return copy;
  };
  expect_error(changed({{"num_key_value_heads", 3}}), {"8 query heads and 3"});
  expect_error(changed({{"num_attention_heads", 7}}), {"num_attention_heads", "7"});
  expect_error(changed({{"num_attention_heads", 0}}), {"num_attention_heads"});
  expect_error(changed({{"head_dim", 7}}), {"head_dim 7"});
  expect_error(changed({{"num_hidden_layers", -1}}), {"layers -1"});
  expect_error(changed({{"vocab_size", 1e300}}), {"vocab_size"});
  expect_error(changed({{"hidden_act", "gelu"}}), {"hidden_act", "gelu"});
  expect_error(changed({{"torch_dtype", "int8"}}), {"dtype", "int8"});
  expect_error(changed({{"eos_token_id", 1000}}), {"eos_token_id", "1000"});
  const json experts = {{"model_type", "qwen3_moe"},
                        {"head_dim", 16},
                        {"num_experts", 4},
                        {"num_experts_per_tok", 5},
                        {"moe_intermediate_size", 8}};
  expect_error(changed(experts), {"4 experts, 5 for each token"});
  json latent = {{"model_type", "deepseek_v2"},
                 {"kv_lora_rank", 32},
                 {"qk_nope_head_dim", 17},
                 {"qk_rope_head_dim", 7},
                 {"v_head_dim", 16}};
  expect_error(changed(latent), {"heads of 17 + 7 rotated"});
  latent.update({{"qk_nope_head_dim", 16},
                 {"qk_rope_head_dim", 8},
                 {"n_routed_experts", 8},
                 {"num_experts_per_tok", 4},
                 {"moe_intermediate_size", 8},
                 {"topk_method", "group_limited_greedy"},
                 {"n_group", 4},
                 {"topk_group", 1}});
  expect_error(changed(latent), {"4 experts for each token from 1 of 4 groups of 8 experts"});
  latent["topk_method"] = "noaux";
  expect_error(changed(latent), {"topk_method", "noaux"});
  latent.update({{"topk_method", "greedy"}, {"norm_topk_prob", true}});
  expect_error(changed(latent), {"norm_topk_prob", "deepseek_v2"});
  expect_error(changed({{"rope_scaling", {{"type", "longrope"}}}}), {"rope_scaling"});
  expect_error(changed({{"rope_scaling", {{"type", "odd"}, {"factor", 2}}}}), {"rope_scaling", "\"odd\""});
  expect_error(changed({{"hidden_size", nullptr}}), {"hidden_size: found null, expected a value"});
  expect_error(changed({{"vocab_size", int64_t{1} << 31}}), {"vocab_size 2147483648, expected a size from 1 to"});
  expect_error(changed({{"partial_rotary_factor", 0.5}}), {"partial_rotary_factor: found 0.5"});
  expect_error(changed({{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}}}}),
               {"rope_parameters: partial_rotary_factor: found 0.25"});
  expect_error(changed({{"quantization_config", {{"quant_method", "fp8"}}}}), {"quantization_config", "GGUF"});
  EXPECT_EQ(read(changed({{"partial_rotary_factor", 1.0}, {"quantization_config", nullptr}})).head_dim, 8);
  const testing::TemporaryFolder folder;
  EXPECT_THROW((void)read_hf_config(folder.write("config.json", "{")), UserError);
  const std::string whole = llama().dump();
  try {
    (void)read_hf_config(folder.write("config.json", "{\"rope_theta\": 1.0, " + whole.substr(1)));
    FAIL() << "one of two values was taken";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("the key \"rope_theta\" twice"), std::string::npos) << error.what();
  }
  folder.write("generation_config.json", R"({"eos_token_id": 5000})");
  try {
    (void)read_hf_config(folder.write("config.json", whole));
    FAIL() << "an id beyond the vocabulary was taken";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("generation_config.json: eos_token_id: found 5000"), std::string::npos)
        << error.what();
  }
  std::filesystem::remove(folder.path() / "generation_config.json");
  EXPECT_THROW((void)read_hf_config(folder.write("config.json", "[]")), UserError);
  EXPECT_THROW((void)read_hf_config(folder.path() / "absent.json"), UserError);
}

}  // namespace
}  // namespace kvarena
