// Future oracle: what the attention of the greedy continuation keeps, restated over the library's own continuation
// (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"

namespace kvarena {
namespace {

TEST(FutureOracle, KeepsWhatTheContinuationAttendsTo) { testing::expect_golden_entries("future_oracle", 3); }

}  // namespace
}  // namespace kvarena
