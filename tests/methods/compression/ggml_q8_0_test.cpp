// q8_0: decoded entries against llama.cpp's own Python port (tests/golden/quantizers.py); what holds for all
// quantisers is in quantizers_test.cpp.

#include "tests/methods/compression/decoded_entries.h"

namespace kvarena {
namespace {

TEST(GgmlQ8, DecodesAsLlamaCpp) { testing::expect_golden_decoded("ggml_q8_0", 1); }

}  // namespace
}  // namespace kvarena
