#include "harness/core/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "harness/core/python_random.h"

namespace kvarena {
namespace {

struct Golden {
  uint64_t seed;
  std::string purpose;
  uint64_t index, bits;
  double uniform;
  uint64_t below_1000;
};

TEST(RandomStream, AgreesWithTheIndependentImplementation) {  // tests/golden/random_stream.py
  const std::array<Golden, 5> golden = {{
      {0U, "", 0U, 0xe220a8397b1dcdafU, 0.8833108082136426, 883U},
      {0U, "", 1U, 0xd300120a5ea35cacU, 0.8242198252979852, 824U},
      {1U, "", 0U, 0xd300120a5ea35cacU, 0.8242198252979852, 824U},
      {42U, "sampling", 7U, 0x94bc0fad93572b18U, 0.5809945868271283, 580U},
      {18446744073709551615U, "größe", 18446744073709551615U, 0xaff18c111e038770U, 0.6872794667997493, 687U},
  }};
  for (const Golden& g : golden) {
    const RandomStream stream(g.seed, g.purpose);
    EXPECT_EQ(stream.bits(g.index), g.bits) << g.seed << " " << g.purpose << " " << g.index;
    EXPECT_EQ(stream.uniform(g.index), g.uniform);
    EXPECT_EQ(stream.below(1000, g.index), g.below_1000);
  }
}

TEST(RandomStream, ADrawDoesNotDependOnOthersBeforeIt) {
  const RandomStream a(3, "needle");
  const RandomStream b(3, "needle");
  (void)a.bits(0);
  EXPECT_EQ(a.bits(17), b.bits(17));
}

TEST(RandomStream, SeedsPurposesAndIndicesGiveDifferentDraws) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const char* purpose : {"a", "b", "ab", "ba"}) {
      for (uint64_t index = 0; index < 50; ++index) seen.insert(RandomStream(seed, purpose).bits(index));
    }
  }
  EXPECT_EQ(seen.size(), 20U * 4 * 50);
}

TEST(RandomStream, UniformFillsTheUnitIntervalEvenly) {
  constexpr int kDraws = 100'000;
  constexpr int kBins = 50;
  const RandomStream stream(20261121, "uniform");
  std::array<int, kBins> bins{};
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double u = stream.uniform(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++bins.at(static_cast<size_t>(u * kBins));
  }
  double chi2 = 0;
  constexpr double kExpected = static_cast<double>(kDraws) / kBins;
  for (const int count : bins) chi2 += (count - kExpected) * (count - kExpected) / kExpected;
  EXPECT_LT(chi2, 85.4) << "49 degrees of freedom: exceeded once in a thousand seeds";
  EXPECT_GT(chi2, 23.9) << "too even";
}

TEST(RandomStream, BelowStaysBelowAndReachesEveryValue) {
  const RandomStream stream(1, "below");
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 1000; ++i) {
    const uint64_t draw = stream.below(7, i);
    ASSERT_LT(draw, 7U);
    seen.insert(draw);
  }
  EXPECT_EQ(seen.size(), 7U);
  EXPECT_EQ(stream.below(1, 5), 0U);
}

TEST(PythonRandom, DrawsWhatPythonDraws) {
  PythonRandom random(0);
  EXPECT_EQ(random.random(), 0.8444218515250481);
  EXPECT_EQ(random.random(), 0.7579544029403025);
  EXPECT_EQ(random.random(), 0.420571580830845);
  EXPECT_DOUBLE_EQ(random.gauss(), -0.06700651572905797);
  EXPECT_DOUBLE_EQ(random.gauss(), 1.1947466787499987);
  for (const uint32_t drawn : {6, 4, 7, 5, 9, 3, 8, 2, 4, 2}) EXPECT_EQ(random.below(10), drawn);
  std::vector<int> items = {0, 1, 2, 3, 4, 5, 6, 7};
  PythonRandom other(42);
  EXPECT_EQ(other.sample(30, 4), (std::vector<uint32_t>{20, 3, 0, 23}));
  EXPECT_EQ(other.sample(100, 7), (std::vector<uint32_t>{35, 31, 28, 17, 94, 13, 86}));
  EXPECT_EQ(other.sample(1000, 5), (std::vector<uint32_t>{758, 913, 558, 89, 604}));
  other.shuffle(items);
  EXPECT_EQ(items, (std::vector<int>{3, 2, 4, 1, 5, 7, 0, 6}));
}

}  // namespace
}  // namespace kvarena
