// The allocation of bits against every allocation there is.

#include "harness/method/bit_allocation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/core/random.h"

namespace kvarena {
namespace {

/// Errors that fall with width and with the variance of later components, as measured ones do; some are worse than
/// leaving out.
RunErrors random_errors(int64_t components, uint64_t seed) {
  const RandomStream draws(seed, "bit allocation");
  uint64_t next = 0;
  RunErrors errors{.components = components};
  for (int64_t i = 0; i < components; ++i) {
    errors.variance.push_back(static_cast<float>((0.2 + draws.uniform(next++)) / static_cast<double>(1 + i / 4)));
  }
  for (const int64_t size : kRunSizes) {
    for (const int64_t bits : kRunBits) {
      for (int64_t first = 0; first < components; ++first) {
        double sum = 0;
        for (int64_t i = first; i < std::min(components, first + size); ++i) sum += errors.variance[i];
        const double share = size == 1 ? 1e-6 : 1.2 * draws.uniform(next++) / static_cast<double>(1 << (bits - 1));
        errors.errors.push_back(static_cast<float>(share * sum));
      }
    }
  }
  return errors;
}

double left_out(const RunErrors& errors, int64_t from) {
  double sum = 0;
  for (int64_t i = from; i < errors.components; ++i) sum += errors.variance[i];
  return sum;
}

/// The least error of all ways to go on from component `first` with `budget` bits and widths from kRunBits[width] on,
/// width -1 while single numbers are allowed.
double least_error(const RunErrors& errors, int64_t first, int64_t budget, int width) {
  double least = left_out(errors, first);
  if (width < 0 && first < std::min(kRunSingles, errors.components) && budget >= 16) {
    least = std::min(least, errors.of(0, 0, first) + least_error(errors, first + 1, budget - 16, -1));
  }
  if (first % kRunAlign != 0) return least;
  for (size_t size = 1; size < kRunSizes.size(); ++size) {
    for (size_t bits = static_cast<size_t>(std::max(width, 0)); bits < kRunBits.size(); ++bits) {
      const ComponentRun run{.first = first, .size = kRunSizes[size], .bits = kRunBits[bits]};
      if (first + run.size > errors.components || run.cost() > budget) continue;
      least = std::min(least, errors.of(size, bits, first) +
                                  least_error(errors, first + run.size, budget - run.cost(), static_cast<int>(bits)));
    }
  }
  return least;
}

double error_of(const RunErrors& errors, const std::vector<ComponentRun>& runs) {
  double sum = 0;
  int64_t end = 0;
  for (const ComponentRun& run : runs) {
    const auto size = static_cast<size_t>(std::ranges::find(kRunSizes, run.size) - kRunSizes.begin());
    const auto bits = static_cast<size_t>(std::ranges::find(kRunBits, run.bits) - kRunBits.begin());
    sum += errors.of(size, run.size == 1 ? 0 : bits, run.first);
    end = run.first + run.size;
  }
  return sum + left_out(errors, end);
}

TEST(BitAllocation, IsTheBestOfAll) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const int64_t components = seed % 2 == 0 ? 96 : 64;
    const RunErrors errors = random_errors(components, seed);
    for (const int64_t budget : {0, 15, 16, 64, 200, 333, 500, 1200}) {
      const std::vector<ComponentRun> runs = allocate_bits(errors, budget);
      EXPECT_NEAR(error_of(errors, runs), least_error(errors, 0, budget, -1), 1e-6) << seed << ", " << budget;
    }
  }
}

TEST(BitAllocation, KeepsItsRules) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const RunErrors errors = random_errors(1100, 100 + seed);
    const int64_t budget = 400 + 200 * static_cast<int64_t>(seed);
    int64_t end = 0, spent = 0, width = 16;
    for (const ComponentRun& run : allocate_bits(errors, budget)) {
      EXPECT_EQ(run.first, end) << "no gaps";
      EXPECT_TRUE(run.size == 1 ? run.first < kRunSingles : run.first % kRunAlign == 0) << run.first;
      const int64_t bits = run.size == 1 ? 16 : run.bits;
      EXPECT_LE(bits, width) << "widths never rise";
      width = bits;
      end += run.size;
      spent += run.cost();
    }
    EXPECT_LE(spent, budget);
    EXPECT_LE(end, 1100);
    EXPECT_GT(spent, budget / 2) << "errors fall with what is spent";
  }
}

}  // namespace
}  // namespace kvarena
