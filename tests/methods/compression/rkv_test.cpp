// R-KV: redundancy by hand, and what the authors' code keeps (tests/golden/decode_eviction.py).

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/observed_layer.h"

namespace kvarena {
namespace {

using testing::kObservedDim;
using testing::ObservedLayer;

TEST(Rkv, OfEqualKeysTheNewestStays) {
  ObservedLayer layer({0, 2, 3, 0, 3, 0, 3, 0, 0, 1}, 1, 5);
  layer.seen.window = 1;
  layer.seen.window_queries.assign(kObservedDim, 0.0F);
  layer.seen.window_lse = {0};
  const auto kept = layer.kept({{"name", "rkv"}, {"window", 1}, {"kernel", 1}, {"lambda", 0}, {"tokens", 3}});
  EXPECT_EQ(kept, (std::vector<int32_t>{0, 3, 4}));
}

TEST(Rkv, KeepsWhatTheAuthorsCodeKeeps) { testing::expect_golden_entries("rkv", 4, "decode_eviction"); }

}  // namespace
}  // namespace kvarena
