// QServe KV4: decoded entries against its formula in float64 (tests/golden/quantizers.py); what holds for all
// quantisers is in quantizers_test.cpp.

#include "tests/methods/compression/decoded_entries.h"

namespace kvarena {
namespace {

TEST(QServe, DecodesAsItsFormula) { testing::expect_golden_decoded("qserve_kv4", 1); }

}  // namespace
}  // namespace kvarena
