// PolarQuant: decoded entries against the authors' code (tests/golden/tile_quantizers.py).

#include "tests/methods/compression/tile_entries.h"

namespace kvarena {
namespace {

TEST(PolarQuant, DecodesAsTheAuthorsCodeDoes) { testing::expect_golden_tiles("polarquant"); }

}  // namespace
}  // namespace kvarena
