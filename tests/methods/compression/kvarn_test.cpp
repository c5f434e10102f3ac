// KVarN: decoded entries against the authors' code (tests/golden/tile_quantizers.py).

#include "tests/methods/compression/tile_entries.h"

namespace kvarena {
namespace {

TEST(KVarN, DecodesAsTheAuthorsCodeDoes) { testing::expect_golden_tiles("kvarn", /*rotated_offset=*/true); }

TEST(KVarN, SinksAreTheAuthorsUnlessTheSettingsSay) {
  testing::PackedLayer layer(nlohmann::json{{"name", "kvarn"}});
  layer.prefill(300);
  EXPECT_EQ(layer.cache.layers[0].segments().front()->entries(0), 128);
  EXPECT_EQ(layer.packed()->entries(0), 128);
}

}  // namespace
}  // namespace kvarena
