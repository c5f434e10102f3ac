// CapKV: shares by hand, and what kvpress keeps (tests/golden/dropping_methods.py).

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/observed_layer.h"

namespace kvarena {
namespace {

using testing::kObservedDim;
using testing::ObservedLayer;

TEST(CapKv, EqualValuesShareWhatTheyTell) {
  ObservedLayer layer({1, 0, 1, 0, 0, 1}, 1, 3);
  layer.seen.query_moments = {{.left_out = 0,
                               .count = 3,
                               .mean = std::vector<double>(kObservedDim),
                               .covariance = std::vector<double>(kObservedDim * kObservedDim)}};
  const at::Tensor scores = layer.scores({{"name", "capkv"}, {"sinks", 0}});  // weights 1, A = I + diag(2, 1)
  EXPECT_NEAR(scores[0][0].item<double>(), 1.0 / 3, 1e-5);
  EXPECT_NEAR(scores[0][1].item<double>(), 1.0 / 3, 1e-5);
  EXPECT_NEAR(scores[0][2].item<double>(), 1.0 / 2, 1e-5);
}

TEST(CapKv, KeepsWhatKvpressKeeps) { testing::expect_golden_entries("capkv", 6); }

}  // namespace
}  // namespace kvarena
