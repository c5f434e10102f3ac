// The emulated tile registers against those of another emulator, and what only products in tiles promise.
#include "kernels/common/tiles.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "tests/kernels/support.h"

namespace kvarena::kernels {
namespace {

using Words = std::array<uint32_t, 256>;

Words words(const std::string& hex) {
  Words read{};
  for (size_t i = 0; i < read.size(); ++i) {
    read[i] = static_cast<uint32_t>(std::stoul(hex.substr(8 * i, 8), nullptr, 16));
  }
  return read;
}

TEST(EmulatedTiles, MultiplyAsAnotherEmulatorsInstructionsDo) {
  std::ifstream file(KVARENA_SOURCE_DIR "/tests/golden/kernels_tiles.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden["cases"].size(), 8U);
  for (const nlohmann::json& each : golden["cases"]) {
    const Words a = words(each["a"]), b = words(each["b"]), c = words(each["c"]), want = words(each["d"]);
    Words got{};
    enter_tiles();
    load_tile<2>(c.data(), 64);
    load_tile<5>(a.data(), 64);
    load_tile<6>(b.data(), 64);
    multiply_tiles<2, 5, 6>();
    store_tile<2>(got.data(), 64);
    leave_tiles();
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(std::bit_cast<float>(want[i]))) {  // which NaN is nobody's promise
        EXPECT_TRUE(std::isnan(std::bit_cast<float>(got[i]))) << each["name"] << " " << i;
      } else {
        EXPECT_EQ(got[i], want[i]) << each["name"] << " " << i;
      }
    }
  }
}

TEST(EmulatedTilesDeathTest, ATileOfAThreadThatHasNotEnteredIsAnError) {
  EXPECT_DEATH(zero_tile<0>(), "before enter_tiles");
  enter_tiles();
  leave_tiles();
  EXPECT_DEATH(zero_tile<0>(), "after leave_tiles");
}

/// x [m, k] times the identity, which rounds nothing.
std::vector<float> through_identity(const std::vector<float>& x, int64_t k) {
  std::vector<float> identity(static_cast<size_t>(k * k)), y(x.size());
  for (int64_t i = 0; i < k; ++i) identity[static_cast<size_t>(i * k + i)] = 1;
  const PackedMatrix w = pack_weights(identity.data(), k, k, DType::bf16);
  matmul({x.data(), static_cast<int64_t>(x.size()) / k, k, &w, nullptr, y.data(), k});
  return y;
}

class TileProducts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (available_cpu_paths().back() != CpuPath::amx) GTEST_SKIP() << "this CPU lacks AVX-512 with VNNI and BF16";
  }
};

TEST_F(TileProducts, LoseNothingOfANumber) {
  const ScopedCpuPath forced(CpuPath::amx);
  constexpr int64_t k = 40;
  for (const int64_t m : {1, 16, 17, 70}) {
    std::vector<float> x = test::normal(m * k, 5);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(x[i], static_cast<int>(i % 200) - 90);
    test::expect_same_bits(through_identity(x, k), x, std::to_string(m));
  }
}

TEST_F(TileProducts, HandOnInfinitiesAndNaN) {
  const ScopedCpuPath forced(CpuPath::amx);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float w[] = {1, 2};  // [2, 1]
  const PackedMatrix packed = pack_weights(w, 2, 1, DType::bf16);
  for (const float x : {kInfinity, -kInfinity}) {
    float y[2];
    matmul({&x, 1, 1, &packed, nullptr, y, 2});
    EXPECT_EQ(y[0], x);
    EXPECT_EQ(y[1], x);
  }
  const auto payload_below = std::bit_cast<float>(0x7f800001U);  // a NaN by its lowest bit alone
  float y[2];
  matmul({&payload_below, 1, 1, &packed, nullptr, y, 2});
  EXPECT_TRUE(std::isnan(y[0]));
}

TEST_F(TileProducts, AreWithinRoundingOfProductsInFloats) {
  constexpr int64_t m = 50, n = 70, k = 600;
  const std::vector<float> w = test::normal(n * k, 6), x = test::normal(m * k, 7);
  const PackedMatrix packed = pack_weights(w.data(), n, k, DType::bf16);
  const auto error = [&](CpuPath path) {
    std::vector<float> y(m * n), exact(m * n);
    const MatmulArgs args{x.data(), m, k, &packed, nullptr, y.data(), n};
    {
      const ScopedCpuPath forced(path);
      matmul(args);
    }
    const ScopedCpuPath reference(CpuPath::reference);
    MatmulArgs again = args;
    again.y = exact.data();
    matmul(again);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += std::pow(static_cast<double>(y[i]) - exact[i], 2);
    return sum;
  };
  EXPECT_LT(error(CpuPath::amx), error(CpuPath::avx512));  // sums of 16 apart from each other round less
}

}  // namespace
}  // namespace kvarena::kernels
