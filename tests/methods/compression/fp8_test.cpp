// fp8: decoded entries against torch's casts (tests/golden/quantizers.py); what holds for all
// quantisers is in quantizers_test.cpp.

#include "tests/methods/compression/decoded_entries.h"

namespace kvarena {
namespace {

TEST(Fp8, DecodesAsTorchCasts) { testing::expect_golden_decoded("fp8", 3); }

}  // namespace
}  // namespace kvarena
