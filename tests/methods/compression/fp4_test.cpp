// fp4: decoded entries against torchao's blocks (tests/golden/quantizers.py); what holds for all quantisers is in
// quantizers_test.cpp.

#include "tests/methods/compression/decoded_entries.h"

namespace kvarena {
namespace {

TEST(Fp4, DecodesAsTorchaoDoes) { testing::expect_golden_decoded("fp4", 2); }

}  // namespace
}  // namespace kvarena
