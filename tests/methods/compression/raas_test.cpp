// RaaS: what the rule keeps while decoding, restated in float64 (tests/golden/dropping_methods.py).

#include "tests/methods/compression/kept_entries.h"

namespace kvarena {
namespace {

TEST(Raas, KeepsWhatTheRuleKeeps) { testing::expect_golden_entries("raas", 9); }

}  // namespace
}  // namespace kvarena
