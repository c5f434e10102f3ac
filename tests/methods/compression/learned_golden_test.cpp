// Kept positions against kvpress, through the engine's own observations (tests/golden/learned_kvpress.py): the model is
// the tests' tiny one in float32, whose weights the script draws alike.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/core/files.h"
#include "harness/engine/fit.h"
#include "harness/engine/fitted_file.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/method/registry.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;

/// Kept positions of [layers][kv_heads] as the script writes them.
json masks(const KvCache& cache) {
  json layers = json::array();
  for (const LayerCache& layer : cache.layers) {
    json heads = json::array();
    for (int64_t head = 0; head < layer.shape().kv_heads; ++head) {
      std::vector<int> nibbles(32, 0);
      for (const int32_t position : layer.tail().positions(head)) nibbles[position / 4] |= 1 << position % 4;
      std::string text;
      for (auto nibble = nibbles.rbegin(); nibble != nibbles.rend(); ++nibble) {
        if (*nibble != 0 || !text.empty()) text += "0123456789abcdef"[*nibble];
      }
      heads.push_back(text);
    }
    layers.push_back(heads);
  }
  return layers;
}

class LearnedGolden : public ::testing::Test {
 protected:
  LearnedGolden()
      : golden_(json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/learned_kvpress.json"))),
        model_(testing::tiny_model(1, {.weights = DType::f32, .cache = DType::f32})) {}

  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Entries that the method keeps of a prompt whose first `prefix` tokens the chat template wrote.
  [[nodiscard]] json kept(const std::vector<int32_t>& tokens, const json& spec, int64_t prefix) {
    const auto method = make_method(spec, "golden");
    const auto facts = model_facts(model_);
    facts->text.encode = [&](std::string_view text) {
      return golden_["instructions"][text.find("starting") == std::string_view::npos ? 0 : 1]
          .get<std::vector<int32_t>>();
    };
    facts->text.before_user.assign(tokens.begin(), tokens.begin() + prefix);
    facts->text.after_user = golden_["after_user"].get<std::vector<int32_t>>();
    const Prefill prompt = prefill(model_, tokens, method->needs(), 33, facts);
    Activity activity;
    return masks(compress_prompt(prompt, *method, activity));
  }

  /// Compares a method with the selections called `name` at every budget of every prompt.
  void expect_equal(const std::string& name, json spec, int64_t prefix = 0) {
    int64_t compared = 0;
    for (size_t number = 0; number < golden_["cases"].size(); ++number) {
      const json& one = golden_["cases"][number];
      for (const auto& [keep, selections] : one["kept"].items()) {
        if (selections[name].is_null()) continue;  // rounding decides
        spec["keep"] = std::stod(keep);
        EXPECT_EQ(kept(one["tokens"].get<std::vector<int32_t>>(), spec, prefix), selections[name])
            << name << ", prompt " << number << ", keep " << keep;
        ++compared;
      }
    }
    EXPECT_GE(compared, 13);
  }

  /// A file of weights [name, shape], drawn as the script draws them.
  [[nodiscard]] std::string drawn(const std::string& file, FittedTensors weights) const {
    const std::filesystem::path path = folder_ / (file + ".safetensors");
    write_fitted(path, {.tensors = std::move(weights)}, /*bf16=*/false);
    return path.string();
  }

  json golden_;
  Transformer model_;
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("kvarena_learned_golden_{}", getpid());
};

/// drawn() of the script: uniform in [-scale, scale) around `middle`.
FittedTensor draw(const std::string& purpose, std::vector<int64_t> shape, double scale, float middle = 0) {
  const RandomStream stream(1, purpose);
  FittedTensor tensor{.shape = std::move(shape), .values = {}};
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  for (int64_t i = 0; i < count; ++i) {
    tensor.values.push_back(static_cast<float>(scale * (2 * stream.uniform(static_cast<uint64_t>(i)) - 1)) + middle);
  }
  return tensor;
}

FittedTensors surrogates(const std::string& kind) {
  FittedTensors weights;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    weights[name] = draw(kind + " " + name, std::move(shape), 0.2);
  };
  for (const std::string base : {"layers.0.", "layers.1.", "layers.2."}) {
    if (kind == "linear") {
      add(base + "weight", {2, 64});
      add(base + "bias", {2});
    } else {
      add(base + "0.weight", {16, 64});
      add(base + "0.bias", {16});
      add(base + "2.weight", {2, 16});
      add(base + "2.bias", {2});
    }
  }
  return weights;
}

FittedTensors gates() {
  FittedTensors weights;
  for (int layer = 0; layer < 3; ++layer) {
    const auto add = [&](const std::string& name, std::vector<int64_t> shape, float middle = 0) {
      weights[fmt::format("layers.{}.{}", layer, name)] =
          draw(fmt::format("gate {}.{}", layer, name), std::move(shape), 0.4, middle);
    };
    add("q_proj.weight", {32, 64});
    add("q_proj.bias", {32});
    add("k_proj.weight", {16, 64});
    add("q_norm.weight", {8}, 1);
    add("k_norm.weight", {8}, 1);
    add("k_base", {2, 1, 4, 8});
    add("b", {2, 1, 2});
  }
  return weights;
}

FittedTensors statistics() {
  const FittedTensor root = draw("query_root", {3, 4, 32, 32}, 0.2);
  FittedTensor covariance{.shape = root.shape, .values = std::vector<float>(root.values.size(), 0.0F)};
  for (size_t i = 0; i < root.values.size(); ++i) {
    const size_t matrix = i / 1024 * 1024;
    for (size_t c = 0; c < 32; ++c) {
      covariance.values[i] += root.values[matrix + i % 1024 / 32 * 32 + c] * root.values[matrix + i % 32 * 32 + c];
    }
  }
  return {{"query_mean", draw("query_mean", {3, 4, 32}, 1.0)}, {"query_cov", covariance}};
}

TEST_F(LearnedGolden, ExpectedAttentionFromThePromptsOwnQueries) {
  expect_equal("expected_attention plain", {{"name", "expected_attention"}});
  expect_equal("expected_attention mean",
               {{"name", "expected_attention"}, {"covariance", false}, {"value_norm", false}});
  expect_equal("expected_attention wide",
               {{"name", "expected_attention"}, {"sinks", 9}, {"future", 64}, {"epsilon", 0.01}});
}

TEST_F(LearnedGolden, KvzipRepeatsThePromptInChunks) {
  json spec = {{"name", "kvzip"}, {"form", "kvpress"}, {"chunk", golden_["chunk"]}};
  expect_equal("kvzip bare global", spec);
  expect_equal("kvzip template global", spec, golden_["prefix"].get<int64_t>());
  spec["budget_rule"] = {{"name", "uniform"}};
  expect_equal("kvzip bare uniform", spec);
  expect_equal("kvzip template uniform", spec, golden_["prefix"].get<int64_t>());
}

TEST_F(LearnedGolden, KvzipPlusWeighsByOutputs) {
  expect_equal("kvzip plus global",
               {{"name", "kvzip"}, {"form", "kvpress"}, {"chunk", golden_["chunk"]}, {"plus", true}});
}

TEST_F(LearnedGolden, ExpectedAttentionFromStatistics) {
  expect_equal(
      "expected_attention fitted",
      {{"name", "expected_attention"}, {"statistics", "fitted"}, {"weights", drawn("statistics", statistics())}});
}

TEST_F(LearnedGolden, KvzapWithPublishedWeightsOfBothForms) {
  for (const std::string kind : {"linear", "mlp"}) {
    expect_equal("kvzap " + kind, {{"name", "kvzap"}, {"weights", drawn(kind, surrogates(kind))}});
  }
}

TEST_F(LearnedGolden, KvzapDropsBelowAThreshold) {
  json spec = {
      {"name", "kvzap_threshold"}, {"window", golden_["window"]}, {"weights", drawn("linear", surrogates("linear"))}};
  int64_t compared = 0;
  for (const json& one : golden_["cases"]) {
    for (const auto& [threshold, selection] : one["thresholds"].items()) {
      spec["threshold"] = std::stod(threshold);
      EXPECT_EQ(kept(one["tokens"].get<std::vector<int32_t>>(), spec, 0), selection) << "threshold " << threshold;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 15);
}

TEST_F(LearnedGolden, FastKvzipsGates) {
  expect_equal("fast_kvzip", {{"name", "fast_kvzip"}, {"weights", drawn("gates", gates())}});
}

TEST_F(LearnedGolden, DuoAttentionsHeadsAndTheirReach) {
  const json& expected = golden_["duo_attention"];
  const json prompt = golden_["cases"][0]["tokens"];
  json spec = {{"name", "duo_attention"}, {"form", "kvpress"}, {"sinks", 8}, {"recent", 16}};
  Progress quiet({.style = ProgressOptions::Style::quiet});
  FitTask task{.texts = expected["texts"].get<std::vector<std::vector<int32_t>>>(),
               .output = folder_ / "heads.safetensors"};
  const FittedWeights heads = fit(model_, model_facts(model_), *make_method(spec, "golden")->fitter(), task, quiet);
  const std::vector<float>& reach = heads.at("full_attention_heads", {3, 2}).values;
  std::string table;
  for (size_t head = 0; head < reach.size(); ++head) {
    EXPECT_NEAR(reach[head], expected["reach"][head / 2][head % 2].get<double>(), 2e-5) << "head " << head;
    table += fmt::format("{}{}", reach[head], head % 2 == 0 ? "\t" : "\n");
  }
  write_file(folder_ / "full_attention_heads.tsv", table);  // as published
  for (const char* file : {"heads.safetensors", "full_attention_heads.tsv"}) {
    spec["weights"] = (folder_ / file).string();
    for (const auto& [sparsity, selection] : expected["kept"].items()) {
      spec["sparsity"] = std::stod(sparsity);
      EXPECT_EQ(kept(prompt.get<std::vector<int32_t>>(), spec, 0), selection) << file << ", sparsity " << sparsity;
    }
  }
}

}  // namespace
}  // namespace kvarena
