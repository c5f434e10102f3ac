// KVTuner: decoded entries against its formula in float64 (tests/golden/quantizers.py); what holds for all
// quantisers is in quantizers_test.cpp.

#include "tests/methods/compression/decoded_entries.h"

namespace kvarena {
namespace {

TEST(KvTuner, DecodesAsItsFormula) { testing::expect_golden_decoded("kvtuner", 1); }

}  // namespace
}  // namespace kvarena
