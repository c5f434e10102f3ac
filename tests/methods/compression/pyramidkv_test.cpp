// PyramidKV: what kvpress keeps in each layer (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"

namespace kvarena {
namespace {

TEST(PyramidKv, KeepsWhatKvpressKeeps) { testing::expect_golden_entries("pyramidkv", 3); }

}  // namespace
}  // namespace kvarena
