// Kept positions of every layer and head of the default model against kvpress and the authors' rules
// (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/core/files.h"
#include "harness/engine/compressed_cache.h"
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

TEST(KeptEntriesOfSmolLm2, AreThoseOfTheReferences) {
  if (!fs::exists(default_model())) GTEST_SKIP() << default_model() << " is absent: run scripts/setup";
  const OpenedModel opened = open_model(default_model());
  Transformer model(opened.config, *opened.checkpoint, {.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  const json golden = json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/dropping_smollm2.json"));
  int64_t compared = 0;
  int64_t different = 0;
  int64_t doubtful = 0;  // layers whose choice hangs on rounding in the reference itself
  for (const json& prompt : golden["prompts"]) {
    Needs needs;
    for (const json& one : prompt["cases"]) needs = combine(needs, make_method(one["spec"], "golden")->needs());
    const Prefill start = prefill(model, prompt["tokens"].get<std::vector<int32_t>>(), needs);
    for (const json& one : prompt["cases"]) {
      Activity activity;
      const KvCache cache = compress_prompt(start, *make_method(one["spec"], "golden"), activity);
      for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
        if (one["layers"][layer].is_null()) {
          ++doubtful;
          continue;
        }
        ++compared;
        if (digest(cache.layers[layer]) == one["layers"][layer].get<std::string>()) continue;
        ++different;
        std::printf("%s, layer %zu differs\n", one["spec"].dump().c_str(), layer);
      }
    }
  }
  EXPECT_EQ(compared + doubtful, 5 * 3 * 21 * 30);
  EXPECT_GT(compared, 9 * doubtful);
  // Thirty layers of float32 arithmetic in another order than the library's turn a near tie here and there: 4 layers of
  // 9384 when this was written, one of them in each of four settings.
  EXPECT_LE(different, compared / 1000);
}

}  // namespace
}  // namespace kvarena
