#include "kernels/rope/rope.h"

#include <numbers>
#include <numeric>

#include "tests/kernels/support.h"

namespace kvarena::kernels {
namespace {

using test::expect_close;
using test::expect_same_bits;
using test::normal;

std::vector<double> frequencies(int64_t half) {
  std::vector<double> f;
  for (int64_t i = 0; i < half; ++i)
    f.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half)));
  return f;
}

/// Powers of two: float32 holds their products with positions, so that angles add up.
std::vector<double> binary_frequencies(int64_t half) {
  std::vector<double> f;
  for (int64_t i = 0; i < half; ++i) f.push_back(std::ldexp(1.0, -static_cast<int>(i)));
  return f;
}

struct Tables {
  std::vector<float> cos, sin;
  Tables(const std::vector<int32_t>& positions, int64_t half, const std::vector<double>& inverse)
      : cos(positions.size() * static_cast<size_t>(half)), sin(cos.size()) {
    rotation_tables(positions.data(), static_cast<int64_t>(positions.size()), inverse.data(), half, 1.0f, cos.data(),
                    sin.data());
  }
  Tables(const std::vector<int32_t>& positions, int64_t half) : Tables(positions, half, frequencies(half)) {}
};

std::vector<float> rotated(std::vector<float> x, const Tables& tables, int64_t tokens, int64_t heads, int64_t head_dim,
                           int64_t rotary) {
  rotate({x.data(), tokens, heads, head_dim, heads * head_dim, head_dim, rotary, tables.cos.data(), tables.sin.data()});
  return x;
}

std::vector<float> rotated(std::vector<float> x, const std::vector<int32_t>& positions, int64_t heads, int64_t head_dim,
                           int64_t rotary) {
  return rotated(std::move(x), Tables(positions, rotary / 2), std::ssize(positions), heads, head_dim, rotary);
}

TEST(Rope, APairTurnsByPositionTimesFrequency) {
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    std::vector<float> x(16);
    x[0] = 1;  // frequency 1: angle 2
    x[9] = 2;  // second of pair 1, frequency 10000^(-1/8)
    const std::vector<float> y = rotated(x, {2}, 1, 16, 16);
    EXPECT_NEAR(y[0], std::cos(2.0), 1e-6);
    EXPECT_NEAR(y[8], std::sin(2.0), 1e-6);
    const double angle = 2 * std::pow(10000.0, -1.0 / 8);
    EXPECT_NEAR(y[1], -2 * std::sin(angle), 1e-6);
    EXPECT_NEAR(y[9], 2 * std::cos(angle), 1e-6);
  }
}

TEST(Rope, AnglesAreFloat32ProductsAsInTransformers) {
  const Tables tables({8191}, 2, {1.0, 0.1});
  EXPECT_EQ(tables.cos[1], static_cast<float>(std::cos(static_cast<double>(8191.0F * 0.1F))));
  EXPECT_EQ(tables.sin[1], static_cast<float>(std::sin(static_cast<double>(8191.0F * 0.1F))));
  EXPECT_GT(std::abs(tables.cos[1] - std::cos(8191 * 0.1)), 1e-6);
}

TEST(Rope, EveryPathAgreesAndChannelsBeyondRotaryStay) {
  for (const int64_t head_dim : {64, 80, 96}) {
    for (const int64_t rotary : {head_dim, head_dim / 2, int64_t{20}}) {
      std::vector<int32_t> positions;
      for (int32_t i = 0; i < 70; ++i) positions.push_back(i * 37);
      const std::vector<float> x = normal(70 * 3 * head_dim, 1);
      std::vector<float> want;
      {
        const ScopedCpuPath reference(CpuPath::reference);
        want = rotated(x, positions, 3, head_dim, rotary);
      }
      EXPECT_EQ(want[static_cast<size_t>(head_dim - 1)] == x[static_cast<size_t>(head_dim - 1)], true);
      for (const CpuPath path : test::simd_paths()) {
        const ScopedCpuPath forced(path);
        const std::vector<float> y = rotated(x, positions, 3, head_dim, rotary);
        expect_close(y, want, 1e-6, 1e-6, name_of(path));
        const std::vector<float> row(x.begin() + 69 * 3 * head_dim, x.end());
        expect_same_bits(rotated(row, {69 * 37}, 3, head_dim, rotary), {y.begin() + 69 * 3 * head_dim, y.end()},
                         "alone");
      }
    }
  }
}

TEST(Rope, TurningStoredKeysByADeltaEqualsRotatingAtTheNewPosition) {
  constexpr int64_t n = 83, head_dim = 64;
  const std::vector<float> raw = normal(n * head_dim, 2);
  std::vector<int32_t> old_positions, new_positions, deltas;
  for (int32_t i = 0; i < n; ++i) {
    old_positions.push_back(1000 + i);
    new_positions.push_back(i * 3);
    deltas.push_back(i * 3 - 1000 - i);
  }
  const auto table = [&](const std::vector<int32_t>& positions) {
    return Tables(positions, head_dim / 2, binary_frequencies(head_dim / 2));
  };
  const std::vector<float> before = rotated(raw, table(old_positions), n, 1, head_dim, head_dim);
  const std::vector<float> want = rotated(raw, table(new_positions), n, 1, head_dim, head_dim);
  const Tables turn = table(deltas);
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    std::vector<float> memory(static_cast<size_t>(cell_bytes(n, head_dim, DType::f32) / 4)), got(n * head_dim);
    const Cells cells{CellKind::keys, DType::f32, head_dim, memory.data()};
    store_rows(cells, 0, n, before.data(), head_dim);
    // In two pieces that meet inside a cell.
    rotate_cells(cells, 0, 21, turn.cos.data(), turn.sin.data(), 32, 32);
    rotate_cells(cells, 21, n - 21, turn.cos.data() + 21 * 32, turn.sin.data() + 21 * 32, 32, 32);
    load_rows(cells, 0, n, got.data(), head_dim);
    expect_close(got, want, 3e-6, 1e-6, name_of(path));
  }
}

TEST(Rope, WholeCellsTurnAsTheirEntriesDo) {
  constexpr int64_t n = 48, head_dim = 48, half = 12;
  std::vector<int32_t> positions(n);
  std::iota(positions.begin(), positions.end(), 100);
  const Tables rows(positions, half);
  std::vector<float> cos(n * half), sin(cos);
  for (int64_t i = 0; i < n * half; ++i) {
    cos[cell_offset(CellKind::keys, half, i / half, i % half)] = rows.cos[i];
    sin[cell_offset(CellKind::keys, half, i / half, i % half)] = rows.sin[i];
  }
  for (const DType dtype : test::kDTypes) {
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      std::vector<float> want(static_cast<size_t>(cell_bytes(n, head_dim, dtype) / 4));
      store_rows({CellKind::keys, dtype, head_dim, want.data()}, 0, n, normal(n * head_dim, 4).data(), head_dim);
      std::vector<float> got = want;
      rotate_cells({CellKind::keys, dtype, head_dim, want.data()}, 16, 32, rows.cos.data(), rows.sin.data(), half,
                   half);
      rotate_whole_cells({CellKind::keys, dtype, head_dim, got.data()}, 1, 2, cos.data(), sin.data(), half);
      expect_same_bits(got, want, name_of(path));
    }
  }
}

TEST(Rope, LengthsAndAnglesBecomeCoordinates) {
  constexpr int64_t n = 4005;
  std::vector<float> lengths = normal(n, 5), angles = normal(n, 6), simd_x, simd_y;
  for (int64_t i = 0; i < n; ++i) angles[i] *= i % 3 == 0 ? 300 : 3;
  angles[0] = 0;
  angles[1] = std::numbers::pi_v<float> / 2;
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    std::vector<float> x = lengths, y = angles;
    from_polar(x.data(), y.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      const double length = lengths[i], bound = 2e-7 * std::abs(length);
      ASSERT_NEAR(x[i], length * std::cos(double{angles[i]}), bound) << name_of(path) << " angle " << angles[i];
      ASSERT_NEAR(y[i], length * std::sin(double{angles[i]}), bound) << name_of(path) << " angle " << angles[i];
    }
    if (path == CpuPath::reference) continue;
    if (simd_x.empty()) simd_x = x, simd_y = y;
    expect_same_bits(x, simd_x, name_of(path));
    expect_same_bits(y, simd_y, name_of(path));
  }
}

TEST(Rope, OneAngleForAllEntriesAndOthersKeepTheirBits) {
  constexpr int64_t n = 40, head_dim = 32;
  const Tables turn({-7}, 16);
  for (const DType dtype : test::kDTypes) {
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      std::vector<float> memory(static_cast<size_t>(cell_bytes(n, head_dim, dtype) / 4)), before(n * head_dim),
          got(n * head_dim);
      const Cells cells{CellKind::keys, dtype, head_dim, memory.data()};
      store_rows(cells, 0, n, normal(n * head_dim, 3).data(), head_dim);
      load_rows(cells, 0, n, before.data(), head_dim);
      rotate_cells(cells, 10, 20, turn.cos.data(), turn.sin.data(), 16, 0);
      load_rows(cells, 0, n, got.data(), head_dim);
      const std::vector<float> want = rotated(before, std::vector<int32_t>(n, -7), 1, head_dim, head_dim);
      for (int64_t e = 0; e < n; ++e) {
        const std::vector<float> row(got.begin() + e * head_dim, got.begin() + (e + 1) * head_dim);
        if (e < 10 || e >= 30) {
          expect_same_bits(row, {before.begin() + e * head_dim, before.begin() + (e + 1) * head_dim}, "outside");
        } else {
          const double half_step = dtype == DType::bf16 ? 0.00391 : dtype == DType::f16 ? 0.00049 : 1e-6;
          expect_close(row, {want.begin() + e * head_dim, want.begin() + (e + 1) * head_dim}, 1e-6, half_step,
                       "inside");
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvarena::kernels
