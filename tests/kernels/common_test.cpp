#include <cstdlib>
#include <limits>

#include "kernels/common/simd_probe.h"
#include "tests/kernels/support.h"

namespace kvarena::kernels {
namespace {

using test::expect_same_bits;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const SimdProbeTable& probe(CpuPath path) {
#if defined(KVARENA_X86_PATHS)
  return path == CpuPath::avx2 ? avx2::simd_probe : avx512::simd_probe;
#else
  std::abort();
#endif
}

TEST(DType, Bf16RoundsTiesToEvenAndKeepsNaN) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie, even below
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie, even above
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(DType, EveryF16SurvivesTheWayThroughF32) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto x = static_cast<uint16_t>(bits);
    const float wide = f16_to_f32(x);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(wide))));
    } else {
      EXPECT_EQ(f32_to_f16(wide), x) << bits;
    }
  }
}

TEST(DType, F16RoundsAtItsEdges) {
  EXPECT_EQ(f16_to_f32(0x3c00), 1.0f);
  EXPECT_EQ(f16_to_f32(0x0001), 0x1p-24f);
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);  // tie between the largest and infinity
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0x0000);  // tie with zero
  EXPECT_EQ(f32_to_f16(0x1.000002p-25f), 0x0001);
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), 0x3c00);  // tie, even below
}

TEST(Simd, ExpIsWithinTwoUlpAndEqualOnEveryPath) {
  std::vector<float> x;
  for (float v = -87.3f; v < 88.3f; v += 0.001f) x.push_back(v);
  for (const float v : {0.0f, -0.0f, -87.34f, -1000.0f, -kInfinity, 88.37f, 1e-30f, -1e-30f}) x.push_back(v);
  while (x.size() % 16 != 0) x.push_back(-1.5f);
  std::vector<float> first;
  for (const CpuPath path : test::simd_paths()) {
    std::vector<float> y(x.size());
    probe(path).exp(x.data(), static_cast<int64_t>(x.size()), y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] < -87.336544f) {
        EXPECT_EQ(y[i], 0.0f) << x[i];
        continue;
      }
      const double want = std::exp(static_cast<double>(x[i]));
      EXPECT_LE(std::fabs(y[i] - want), 2.0 * 0x1p-23 * want) << "exp(" << x[i] << ") = " << y[i];
    }
    if (first.empty()) first = y;
    expect_same_bits(y, first, name_of(path));
  }
}

TEST(Simd, ExpOfOneIsExactAtZeroAndCarriesNaN) {
  for (const CpuPath path : test::simd_paths()) {
    std::vector<float> x(16, 0.0f), y(16);
    x[1] = std::numeric_limits<float>::quiet_NaN();
    x[2] = 500.0f;
    probe(path).exp(x.data(), 16, y.data());
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_GT(y[2], 2e38f);
  }
}

TEST(Simd, StoringRoundsLikeTheScalarConversions) {
  std::vector<float> x = test::normal(4096, 7);
  std::mt19937_64 generator(8);
  for (int i = 0; i < 65536; ++i) x.push_back(std::bit_cast<float>(static_cast<uint32_t>(generator())));
  for (const CpuPath path : test::simd_paths()) {
    for (const DType dtype : test::kDTypes) {
      std::vector<float> stored(x.size()), back(x.size());
      probe(path).convert(x.data(), static_cast<int64_t>(x.size()), static_cast<int>(dtype), stored.data(),
                          back.data());
      for (size_t i = 0; i < x.size(); ++i) {
        float one = 0;
        store_element(&one, dtype, 0, x[i]);
        const float want = load_element(&one, dtype, 0);
        if (std::isnan(x[i])) {
          ASSERT_TRUE(std::isnan(back[i]) && std::isnan(want)) << name_of(path) << " " << name_of(dtype);
        } else {
          ASSERT_EQ(back[i], want) << name_of(path) << " " << name_of(dtype) << " of " << x[i];
        }
      }
    }
  }
}

TEST(Simd, LaneSumsFollowTheStatedTree) {
  const std::vector<float> x = test::normal(16, 3);
  float tree[16];
  std::copy(x.begin(), x.end(), tree);
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) tree[i] += tree[i + step];
  }
  for (const CpuPath path : test::simd_paths()) {
    EXPECT_EQ(probe(path).sum(x.data()), tree[0]);
    EXPECT_EQ(probe(path).max(x.data()), *std::max_element(x.begin(), x.end()));
  }
}

TEST(CpuPath, AnUnknownNameSaysWhatIsAllowed) {
  try {
    (void)parse_cpu_path("sse9");
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("KVARENA_CPU"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("reference"), std::string::npos);
  }
}

TEST(CpuPath, AScopeForcesAPathAndGivesItBack) {
  const CpuPath before = active_cpu_path();
  {
    const ScopedCpuPath forced(CpuPath::reference);
    EXPECT_EQ(active_cpu_path(), CpuPath::reference);
  }
  EXPECT_EQ(active_cpu_path(), before);
}

}  // namespace
}  // namespace kvarena::kernels
