// Kept positions of every layer and head of the default model against kvpress and the authors' rules
// (tests/golden/dropping_methods.py, learned_smollm2.py).

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/core/files.h"
#include "harness/engine/compressed_cache.h"
#include "harness/engine/model_facts.h"
#include "harness/method/registry.h"
#include "harness/model/open_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

fs::path default_model() {
  const char* home = std::getenv("KVARENA_HOME");
  return (home != nullptr ? fs::path(home) : fs::path(std::getenv("HOME")) / ".cache/kvarena") / "models/smollm2-135m";
}

/// Of a layer's positions, [kv_heads][kept], as the script writes it.
std::string digest(const LayerCache& layer) {
  json heads = json::array();
  for (int64_t head = 0; head < layer.shape().kv_heads; ++head) heads.push_back(layer.tail().positions(head));
  return sha256(heads.dump()).substr(0, 10);
}

struct Comparison {
  int64_t equal = 0;
  int64_t different = 0;
  int64_t doubtful = 0;  // layers whose choice hangs on rounding in the reference itself

  [[nodiscard]] int64_t compared() const { return equal + different; }
};

/// Every case of a golden file, layer by layer.
Comparison compare(Transformer& model, const json& golden, const std::shared_ptr<const ModelFacts>& facts) {
  Comparison result;
  for (const json& prompt : golden["prompts"]) {
    Needs needs;
    for (const json& one : prompt["cases"]) needs = combine(needs, make_method(one["spec"], "golden")->needs());
    const Prefill start = prefill(model, prompt["tokens"].get<std::vector<int32_t>>(), needs, kPrefillChunk, facts);
    for (const json& one : prompt["cases"]) {
      Activity activity;
      const KvCache cache = compress_prompt(start, *make_method(one["spec"], "golden"), activity);
      for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
        const json& expected = one["layers"][layer];
        const bool same = !expected.is_null() && digest(cache.layers[layer]) == expected.get<std::string>();
        ++(expected.is_null() ? result.doubtful : same ? result.equal : result.different);
        if (!expected.is_null() && !same) std::printf("%s, layer %zu differs\n", one["spec"].dump().c_str(), layer);
      }
    }
  }
  return result;
}

class KeptEntriesOfSmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(default_model())) GTEST_SKIP() << default_model() << " is absent: run scripts/setup";
    opened_ = open_model(default_model());
    model_.emplace(opened_->config, *opened_->checkpoint,
                   TransformerOptions{.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  }

  static json golden(const std::string& name) {
    return json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/" + name));
  }

  std::optional<OpenedModel> opened_;
  std::optional<Transformer> model_;
};

TEST_F(KeptEntriesOfSmolLm2, AreThoseOfTheReferences) {
  const Comparison found = compare(*model_, golden("dropping_smollm2.json"), nullptr);
  EXPECT_EQ(found.compared() + found.doubtful, 5 * 3 * 25 * 30);
  EXPECT_GT(found.compared(), 9 * found.doubtful);
  // Thirty layers of float32 arithmetic in another order than the library's turn a near tie here and there: 4 layers of
  // 9384 when this was written, one of them in each of four settings.
  EXPECT_LE(found.different, found.compared() / 1000);
}

/// Methods with weights, with those that the project ships for this model (tests/golden/learned_smollm2.py).
TEST_F(KeptEntriesOfSmolLm2, ByFittedWeightsAreKvpresss) {
  const json expected = golden("learned_smollm2.json");
  const auto facts = model_facts(*model_);
  facts->text.encode = [&](std::string_view text) {
    return expected["instructions"][text.find("starting") == std::string_view::npos ? 0 : 1]
        .get<std::vector<int32_t>>();
  };
  const Comparison found = compare(*model_, expected, facts);
  EXPECT_EQ(found.compared() + found.doubtful, 5 * (3 * 7 + 6) * 30);
  EXPECT_GT(found.compared(), 9 * found.doubtful);
  EXPECT_LE(found.different, found.compared() / 1000);
}

}  // namespace
}  // namespace kvarena
