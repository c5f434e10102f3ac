#include "harness/results/series_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "harness/core/random.h"

namespace kvarena::results {
namespace {

TEST(SeriesText, WritesShortestDigitsAndNullForNotDefined) {
  const std::vector<float> values = {0.1F, 3.0F, std::nanf(""), -std::numeric_limits<float>::infinity(), 1e-10F};
  EXPECT_EQ(series_text(values), "[0.1,3,null,-9e999,1e-10]");
  EXPECT_EQ(series_text({}), "[]");
  EXPECT_TRUE(parse_series("[]").value().empty());
}

TEST(SeriesText, ReadsBackEveryBitPattern) {
  const RandomStream random(20261121, "series bits");
  std::vector<float> values = {0.0F, -0.0F, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max(),
                               -std::numeric_limits<float>::infinity()};
  for (uint64_t i = 0; i < 20000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random.bits(i)));
    values.push_back(std::isnan(value) ? 1.0F : value);
  }
  const std::vector<float> back = parse_series(series_text(values)).value();
  ASSERT_EQ(back.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(values[i])) << "index " << i;
  }
  EXPECT_TRUE(std::isnan(parse_series("[1,null]").value()[1]));
}

TEST(SeriesText, RefusesWhatItDidNotWrite) {
  EXPECT_FALSE(parse_series("[1,x]"));
  EXPECT_FALSE(parse_series("1,2"));
}

}  // namespace
}  // namespace kvarena::results
