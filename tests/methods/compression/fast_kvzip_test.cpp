// Fast KVzip: by hand, and what kvpress keeps (tests/golden/learned_kvpress.py).

#include <limits>

#include "tests/methods/compression/learned_golden.h"
#include "tests/methods/compression/observed_layer.h"

namespace kvarena {
namespace {

using testing::draw;
using testing::ObservedLayer;

TEST(FastKvzip, AGateOfZerosScoresOneSeventeenth) {
  const auto zeros = [](std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return FittedTensor{.shape = std::move(shape), .values = std::vector<float>(static_cast<size_t>(count), 0.0F)};
  };
  ObservedLayer layer(std::vector<float>(100, 1.0F), 1, 50,
                      {{{"layers.0.q_proj.weight", zeros({16, 2})},
                        {"layers.0.q_proj.bias", zeros({16})},
                        {"layers.0.k_proj.weight", zeros({16, 2})},
                        {"layers.0.q_norm.weight", zeros({16})},
                        {"layers.0.k_norm.weight", zeros({16})},
                        {"layers.0.k_base", zeros({1, 1, 16, 16})},
                        {"layers.0.b", zeros({1, 1, 1})}}});
  layer.seen.hidden.assign(100, 1.0F);
  const at::Tensor scores = layer.scores({{"name", "fast_kvzip"}});
  EXPECT_NEAR(scores[0][20].item<double>(), 1.0 / 17, 1e-6);
  constexpr float kCertain = std::numeric_limits<float>::max();
  EXPECT_EQ(scores[0][3].item<float>(), kCertain);
  EXPECT_EQ(scores[0][49].item<float>(), kCertain);  // 2 % of 50: one entry
  EXPECT_LT(scores[0][48].item<float>(), 1.0F);
}

class FastKvzipGolden : public testing::LearnedGolden {
 protected:
  FastKvzipGolden() : LearnedGolden("fast_kvzip") {}
};

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

TEST_F(FastKvzipGolden, ScoresByGates) {
  expect_equal("fast_kvzip", {{"name", "fast_kvzip"}, {"weights", drawn("gates", gates())}});
}

}  // namespace
}  // namespace kvarena
