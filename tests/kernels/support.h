#pragma once
// Shared helpers of kernel tests: seeded numbers, every CPU path, comparison that names index and values.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/common/arithmetic.h"
#include "kernels/common/cpu_path.h"
#include "kernels/common/dtype.h"
#include "kernels/common/parallel.h"

namespace kvarena::kernels::test {

/// `count` numbers from a normal distribution; the same seed gives the same numbers.
inline std::vector<float> normal(int64_t count, uint64_t seed, float sd = 1.0f) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> distribution(0.0f, sd);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = distribution(generator);
  return x;
}

/// The SIMD paths this CPU can run.
inline std::vector<CpuPath> simd_paths() {
  std::vector<CpuPath> paths;
  for (const CpuPath path : available_cpu_paths()) {
    if (path != CpuPath::reference) paths.push_back(path);
  }
  return paths;
}

/// Largest |a - b| / (absolute + relative * |b|) must be at most 1.
inline void expect_close(const std::vector<float>& got, const std::vector<float>& want, double absolute,
                         double relative, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool same = std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i]);
    const double limit = absolute + relative * std::fabs(static_cast<double>(want[i]));
    ASSERT_TRUE(same || std::fabs(static_cast<double>(got[i]) - want[i]) <= limit)
        << what << ": index " << i << ": got " << got[i] << ", want " << want[i] << " within " << limit;
  }
}

/// Every bit equal (so NaN equals NaN and -0 differs from 0).
inline void expect_same_bits(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << what << ": index " << i << ": " << got[i] << " and " << want[i];
  }
}

inline constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};

/// How numbers are stored and multiplied.
struct Kind {
  DType dtype;
  Arithmetic arithmetic = Arithmetic::exact;
};
inline constexpr Kind kKinds[] = {{DType::f32}, {DType::f16}, {DType::bf16}, {DType::bf16, Arithmetic::bf16}};

inline std::string describe(const Kind& kind) {
  return std::string(name_of(kind.dtype)) + (kind.arithmetic == Arithmetic::bf16 ? " rounded" : "");
}

}  // namespace kvarena::kernels::test
