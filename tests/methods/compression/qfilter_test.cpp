// Q-Filters: by hand, what kvpress keeps (tests/golden/learned_kvpress.py), and the direction that a fit finds.

#include "tests/methods/compression/learned_golden.h"
#include "tests/methods/compression/observed_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::draw;
using testing::kObservedDim;
using testing::ObservedLayer;

TEST(QFilter, KeysAlongTheFilterLeave) {
  FittedTensor filter{.shape = {1, kObservedDim}, .values = std::vector<float>(kObservedDim)};
  filter.values[0] = -1;
  ObservedLayer layer({3, 0, -2, 1, 1, 5}, 1, 3, {{{"layers.0.filter", filter}}});
  EXPECT_EQ(layer.kept({{"name", "qfilter"}, {"tokens", 2}}), (std::vector<int32_t>{0, 2}));
}

class QFilterGolden : public testing::LearnedGolden {
 protected:
  QFilterGolden() : LearnedGolden("qfilter") {}
};

TEST_F(QFilterGolden, WithPublishedFilters) {
  const FittedTensors weights = {{"q_filters", draw("q_filters", {3, 2, 32}, 1.0)}};
  expect_equal("qfilter", {{"name", "qfilter"}, {"weights", drawn("q_filters", weights)}});
}

TEST(QFilter, AFitPointsAwayFromMostQueries) {
  const auto method = make_method({{"name", "qfilter"}, {"keep", 0.5}}, "test");
  const auto fitter = method->fitter();
  // Two query heads of one kv head: rows along (2, 0) but for one, and along (0, -3).
  const FittedTensors record = {{"queries", {.shape = {3, 2, 2}, .values = {2, 0, 0, -3, 2, 0, 0, -3, -1, 0, 0, -3}}},
                                {"kv_heads", {.shape = {1}, .values = {1}}}};
  const FittedTensor filter = fitter->solve({record}, RandomStream(0, "test")).at("filter");
  EXPECT_EQ(filter.shape, (std::vector<int64_t>{1, 2}));
  EXPECT_NEAR(filter.values[0], -0.5, 1e-6);
  EXPECT_NEAR(filter.values[1], 0.5, 1e-6);
}

}  // namespace
}  // namespace kvarena
