// Tri-shape: the authors' code (tests/golden/sparse_prefill.py), masked attention in double; its last rows have the
// bits of dense attention.

#include "tests/methods/prefill/prefill_support.h"

namespace kvarena {
namespace {

using Request = testing::PrefillRequest;

TEST(TriShape, AttendsAsTheAuthorsCode) { testing::expect_golden_rows("tri_shape"); }

TEST(TriShape, AttendsAsAShapeAndItsLastQueriesToEverything) {
  for (const int64_t last : {1, 50, 64, 290}) {
    const nlohmann::json spec = {{"name", "tri_shape"}, {"sinks", 7}, {"local", 33}, {"last", last}};
    testing::expect_attends(Request(spec, 333, 5), [&](int64_t, int64_t row, int64_t entry) {
      return entry < 7 || entry > row - 33 || row >= 333 - last;
    });
  }
}

TEST(TriShape, ItsLastQueriesHaveTheBitsOfDenseAttention) {
  const Request sparse({{"name", "tri_shape"}, {"sinks", 16}, {"local", 64}, {"last", 100}}, 900, 5);
  const Request dense({{"name", "full"}}, 900, 5);
  const std::vector<float> some = sparse.attended(), all = dense.attended();
  EXPECT_NE(some, all);
  const int64_t front = 800 * Request::kQuery;
  EXPECT_TRUE(std::equal(some.begin() + front, some.end(), all.begin() + front));
}

}  // namespace
}  // namespace kvarena
