// TriAttention: by hand, what the authors' code keeps (tests/golden/decode_eviction.py), and the centres that a fit
// finds.

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/learned_golden.h"
#include "tests/methods/compression/observed_layer.h"

namespace kvarena {
namespace {

using testing::draw;
using testing::kObservedDim;
using testing::ObservedLayer;

/// A centre along the first channel, with so much spread around it.
FittedTensors centre(float spread) {
  FittedTensor mean{.shape = {1, kObservedDim}, .values = std::vector<float>(kObservedDim)};
  FittedTensor norm{.shape = {1, kObservedDim / 2}, .values = std::vector<float>(kObservedDim / 2)};
  mean.values[0] = 2;
  norm.values[0] = norm.values[1] = spread;
  norm.values[0] += 2;
  return {{"layers.0.query_mean", mean}, {"layers.0.query_norm", norm}};
}

TEST(TriAttention, ScoresAddTheCentresAttentionAndTheNormsThatItsSpreadWouldSee) {
  ObservedLayer layer({1, 0, -1, 0, 0, 3}, 1, 3, {centre(0.5F)});
  const at::Tensor scores = layer.scores({{"name", "triattention"}, {"normalise", false}});
  EXPECT_NEAR(scores[0][0].item<double>(), 2 + 0.5, 1e-6);
  EXPECT_NEAR(scores[0][1].item<double>(), -2 + 0.5, 1e-6);
  EXPECT_NEAR(scores[0][2].item<double>(), 1.5, 1e-6);
}

class TriAttentionGolden : public testing::LearnedGolden {
 protected:
  TriAttentionGolden() : LearnedGolden("qfilter") {}
};

TEST_F(TriAttentionGolden, KeepsWhatTheAuthorsCodeKeeps) {
  FittedTensors weights;
  for (int64_t layer = 0; layer < 3; ++layer) {
    const std::string base = fmt::format("layers.{}.query_", layer);
    const FittedTensor mean = draw(base + "mean", {4, 32}, 1.0);
    FittedTensor norm = draw(base + "norm", {4, 16}, 0.5);
    for (int64_t i = 0; i < 64; ++i) {
      const int64_t at = i / 16 * 32 + i % 16;
      norm.values[i] = std::abs(norm.values[i]) + std::hypot(mean.values[at], mean.values[at + 16]);
    }
    weights[base + "mean"] = mean;
    weights[base + "norm"] = norm;
  }
  testing::expect_golden_entries("triattention", 4, "decode_eviction", drawn("centres", weights));
}

TEST(TriAttention, AFitIsTheMeanOfQueriesBeforeRotation) {
  Transformer model = testing::tiny_model();
  const auto method = make_method({{"name", "triattention"}, {"keep", 0.5}}, "test");
  const auto fitter = method->fitter();
  const Prefill prompt = prefill(model, testing::tiny_prompt(40), combine(fitter->needs(), {.query_moments = {0}}));
  Activity activity;
  KvCache cache = prompt.cache.clone();
  const LayerContext layer{.layer = 1,
                           .layers = 3,
                           .cache = cache.layers[1],
                           .activity = activity,
                           .prompt_tokens = 40,
                           .model = prompt.model.get()};
  const LayerView view(layer, &prompt.observations[1]);
  const RandomStream draws(0, "test");
  const FittedTensors found = fitter->solve({fitter->collect(view, draws)}, draws);
  const std::vector<double>& mean = view.query_moments(0).mean;
  ASSERT_EQ(found.at("query_mean").values.size(), mean.size());
  for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(found.at("query_mean").values[i], mean[i], 2e-3);
}

}  // namespace
}  // namespace kvarena
