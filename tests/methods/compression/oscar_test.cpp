// OScaR: decoded entries against the authors' code (tests/golden/tile_quantizers.py).

#include "tests/methods/compression/tile_entries.h"

namespace kvarena {
namespace {

TEST(Oscar, DecodesAsTheAuthorsCodeDoes) { testing::expect_golden_tiles("oscar"); }

}  // namespace
}  // namespace kvarena
