#pragma once
// Kept positions against kvpress, through the engine's own observations (tests/golden/learned_kvpress.py): the model is
// the tests' tiny one in float32, whose weights the script draws alike.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/engine/fitted_file.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/observe.h"
#include "harness/method/registry.h"
#include "tests/support/golden.h"
#include "tests/support/random_entries.h"
#include "tests/support/tiny_model.h"

namespace kvarena::testing {

/// Kept positions of [layers][kv_heads] as the script writes them.
inline nlohmann::json masks(const KvCache& cache) {
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerCache& layer : cache.layers) {
    nlohmann::json heads = nlohmann::json::array();
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
  explicit LearnedGolden(const std::string& method)
      : golden_(golden("learned_kvpress/" + method + ".json")),
        model_(tiny_model(1, {.weights = DType::f32, .cache = DType::f32})) {}

  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Entries that the method keeps of a prompt whose first `prefix` tokens the chat template wrote.
  [[nodiscard]] nlohmann::json kept(const std::vector<int32_t>& tokens, const nlohmann::json& spec, int64_t prefix) {
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
  void expect_equal(const std::string& name, nlohmann::json spec, int64_t prefix = 0) {
    int64_t compared = 0;
    for (size_t number = 0; number < golden_["cases"].size(); ++number) {
      const nlohmann::json& one = golden_["cases"][number];
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

  nlohmann::json golden_;
  Transformer model_;
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("kvarena_learned_golden_{}", getpid());
};

/// drawn() of the script: uniform in [-scale, scale) around `middle`.
inline FittedTensor draw(const std::string& purpose, std::vector<int64_t> shape, double scale, float middle = 0) {
  FittedTensor tensor{.shape = std::move(shape), .values = {}};
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  for (const float number : drawn_numbers(purpose, count, scale)) tensor.values.push_back(number + middle);
  return tensor;
}

}  // namespace kvarena::testing
