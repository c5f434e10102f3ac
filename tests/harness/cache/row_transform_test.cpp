#include "harness/cache/row_transform.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvarena {
namespace {

constexpr int64_t kDim = 32;

std::vector<float> identity() {
  std::vector<float> rows(kDim * kDim);
  for (int64_t c = 0; c < kDim; ++c) rows[c * kDim + c] = 1;
  return rows;
}

/// Images of the unit vectors are the columns of the map: of a rotation they have length 1 and stand on each other.
TEST(RowTransform, RotationsKeepLengthsAndAngles) {
  for (const RowTransformPtr& rotation : {random_rotation(kDim, 7), hadamard_transform(kDim, 7)}) {
    std::vector<float> rows = identity();
    rotation->apply(0, rows.data(), kDim);
    for (int64_t a = 0; a < kDim; ++a) {
      for (int64_t b = 0; b < kDim; ++b) {
        double dot = 0;
        for (int64_t c = 0; c < kDim; ++c) dot += static_cast<double>(rows[a * kDim + c]) * rows[b * kDim + c];
        EXPECT_NEAR(dot, a == b ? 1 : 0, 1e-6) << a << " " << b;
      }
    }
    rotation->undo(0, rows.data(), kDim);
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(rows[i], identity()[i], 1e-6) << i;
  }
}

/// The first column of a Walsh-Hadamard matrix is positive, so the first number of a unit vector's image has the sign
/// that its channel drew: of 64 seeds each channel sees about half of either.
TEST(RowTransform, EveryChannelDrawsASign) {
  std::vector<int> minus(kDim);
  for (uint64_t seed = 0; seed < 64; ++seed) {
    std::vector<float> rows = identity();
    hadamard_transform(kDim, seed)->apply(0, rows.data(), kDim);
    for (int64_t c = 0; c < kDim; ++c) minus[c] += rows[c * kDim] < 0 ? 1 : 0;
  }
  for (int64_t c = 0; c < kDim; ++c) EXPECT_NEAR(minus[c], 32, 5 * std::sqrt(64.0) / 2) << c;  // five deviations
}

}  // namespace
}  // namespace kvarena
