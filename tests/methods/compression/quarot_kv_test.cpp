// QuaRot: decoded entries against its formula in float64 (tests/golden/quantizers.py); what holds for all
// quantisers is in quantizers_test.cpp.

#include "tests/methods/compression/decoded_entries.h"

namespace kvarena {
namespace {

TEST(QuaRot, DecodesAsItsFormula) { testing::expect_golden_decoded("quarot_kv", 2); }

}  // namespace
}  // namespace kvarena
