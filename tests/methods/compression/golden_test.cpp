// Kept positions against kvpress and transformers (tests/golden/dropping_kvpress.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/core/files.h"
#include "harness/method/registry.h"

namespace kvarena {
namespace {

using nlohmann::json;

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::f32};

std::vector<float> flat(const json& nested) {
  if (!nested.is_array()) return {nested.get<float>()};
  std::vector<float> values;
  for (const json& item : nested) {
    const std::vector<float> part = flat(item);
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

/// log of the softmax denominators of the window's queries over the keys each can see: [w, q_heads].
std::vector<float> window_lse(const std::vector<float>& queries, const std::vector<float>& keys, int64_t n, int64_t w) {
  std::vector<float> lse;
  for (int64_t t = 0; t < w; ++t) {
    for (int64_t h = 0; h < kShape.q_heads; ++h) {
      double sum = 0;
      for (int64_t i = 0; i <= n - w + t; ++i) {
        double dot = 0;
        for (int64_t c = 0; c < 16; ++c) dot += queries[(t * 4 + h) * 16 + c] * keys[(i * 2 + h / 2) * 16 + c];
        sum += std::exp(dot / 4);
      }
      lse.push_back(static_cast<float>(std::log(sum)));
    }
  }
  return lse;
}

class DroppingGolden : public ::testing::TestWithParam<std::string> {
 protected:
  DroppingGolden() : golden_(json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/dropping_kvpress.json"))) {}

  [[nodiscard]] json settings(double keep) const {
    json spec = {{"name", GetParam()}, {"keep", keep}};
    if (GetParam() == "snapkv") spec["window"] = golden_["window"];
    if (GetParam() == "snapkv") spec["kernel"] = golden_["kernel"];
    if (GetParam() == "streaming_llm") spec["sinks"] = golden_["sinks"];
    return spec;
  }

  /// Positions that the method keeps of a layer, a list a head.
  [[nodiscard]] json kept(const json& layer, double keep) const {
    const auto n = golden_["tokens"].get<int64_t>();
    const auto w = golden_["window"].get<int64_t>();
    const std::vector<float> keys = flat(layer["keys"]);
    KvCache cache(1, kShape);
    cache.layers[0].append(keys.data(), keys.data(), n, 32, 0);
    LayerObservations seen{.entries = n,
                           .prompt_attention = flat(layer["attention_sums"]),
                           .window_queries = flat(layer["window_queries"]),
                           .window = w};
    seen.window_lse = window_lse(seen.window_queries, keys, n, w);
    Activity activity;
    LayerContext context{.layer = 0, .layers = 1, .cache = cache.layers[0], .activity = activity, .prompt_tokens = n};
    make_method(settings(keep), "golden")->compress_all({&context, 1}, {&seen, 1});
    json lists = json::array();
    for (int64_t head = 0; head < kShape.kv_heads; ++head) lists.push_back(cache.layers[0].tail().positions(head));
    return lists;
  }

  json golden_;
};

TEST_P(DroppingGolden, KeepsWhatTheReferenceKeeps) {
  int64_t compared = 0;
  for (size_t prompt = 0; prompt < golden_["cases"].size(); ++prompt) {
    for (const json& layer : golden_["cases"][prompt]) {
      for (const auto& [keep, selections] : layer["kept"].items()) {
        EXPECT_EQ(kept(layer, std::stod(keep)), selections[GetParam()]) << "prompt " << prompt << ", keep " << keep;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 18);
}

INSTANTIATE_TEST_SUITE_P(Kvpress, DroppingGolden, ::testing::Values("snapkv", "streaming_llm", "knorm", "h2o"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kvarena
