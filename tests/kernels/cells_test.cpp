#include "kernels/cells/cells.h"

#include "tests/kernels/support.h"

namespace kvarena::kernels {
namespace {

using test::normal;

constexpr CellKind kKinds[] = {CellKind::keys, CellKind::values};

/// Row-major rows rounded as a cell of `dtype` rounds them.
std::vector<float> rounded(std::vector<float> rows, DType dtype) {
  for (float& x : rows) {
    float stored = 0;
    store_element(&stored, dtype, 0, x);
    x = load_element(&stored, dtype, 0);
  }
  return rows;
}

struct Buffer {
  std::vector<float> memory;
  Cells cells;
  Buffer(CellKind kind, DType dtype, int64_t head_dim, int64_t entries)
      : memory(static_cast<size_t>(cell_bytes(entries, head_dim, dtype) / 4), -3.0f),
        cells{kind, dtype, head_dim, memory.data()} {}
};

TEST(Cells, AnEntryLiesWhereTheLayoutSays) {
  EXPECT_EQ(cell_offset(CellKind::keys, 64, 0, 5), 80);
  EXPECT_EQ(cell_offset(CellKind::keys, 64, 17, 5), 1024 + 81);
  EXPECT_EQ(cell_offset(CellKind::values, 64, 17, 5), 1024 + 64 + 5);
  EXPECT_EQ(cell_bytes(17, 64, DType::bf16), 2 * 16 * 64 * 2);
  EXPECT_EQ(cell_bytes(0, 64, DType::f32), 0);
}

TEST(Cells, StoredRowsAreReadBackAndNeighboursKeepTheirBits) {
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    for (const CellKind kind : kKinds) {
      for (const DType dtype : test::kDTypes) {
        for (const int64_t head_dim : {16, 64, 80}) {
          for (const auto& [position, count] :
               {std::pair<int64_t, int64_t>{0, 1}, {0, 16}, {3, 40}, {16, 33}, {15, 2}, {5, 0}}) {
            Buffer buffer(kind, dtype, head_dim, 64);
            const std::vector<float> before = normal(64 * head_dim, 1);
            store_rows(buffer.cells, 0, 64, before.data(), head_dim);
            const int64_t stride = head_dim * 3;  // one head of [n, 3, head_dim]
            const std::vector<float> rows = normal(count * stride, 2);
            store_rows(buffer.cells, position, count, rows.data() + head_dim, stride);
            std::vector<float> want = before, got(before.size());
            for (int64_t r = 0; r < count; ++r) {
              std::copy_n(rows.begin() + r * stride + head_dim, head_dim, want.begin() + (position + r) * head_dim);
            }
            load_rows(buffer.cells, 0, 64, got.data(), head_dim);
            test::expect_same_bits(got, rounded(want, dtype), std::string(name_of(path)) + " " + name_of(dtype));
          }
        }
      }
    }
  }
}

TEST(Cells, GatheringInPlaceKeepsTheListedEntriesInOrder) {
  for (const CellKind kind : kKinds) {
    for (const DType dtype : test::kDTypes) {
      constexpr int64_t head_dim = 32, n = 100;
      Buffer buffer(kind, dtype, head_dim, n);
      const std::vector<float> rows = rounded(normal(n * head_dim, 5), dtype);
      store_rows(buffer.cells, 0, n, rows.data(), head_dim);
      std::vector<int32_t> index{0, 1, 5, 9, 31};
      for (int32_t e = 48; e < 80; ++e) index.push_back(e);
      index.push_back(99);
      gather_entries(buffer.cells, index.data(), static_cast<int64_t>(index.size()), buffer.cells, 0);
      std::vector<float> got(index.size() * head_dim), want;
      load_rows(buffer.cells, 0, static_cast<int64_t>(index.size()), got.data(), head_dim);
      for (const int32_t e : index) {
        want.insert(want.end(), rows.begin() + e * head_dim, rows.begin() + (e + 1) * head_dim);
      }
      test::expect_same_bits(got, want, name_of(dtype));
    }
  }
}

TEST(Cells, WholePagesAreGatheredLikeSingleEntries) {
  constexpr int64_t head_dim = 16, n = 96;
  Buffer from(CellKind::keys, DType::bf16, head_dim, n), to(CellKind::keys, DType::bf16, head_dim, n);
  const std::vector<float> rows = rounded(normal(n * head_dim, 6), DType::bf16);
  store_rows(from.cells, 0, n, rows.data(), head_dim);
  std::vector<int32_t> index;
  for (const int32_t page : {1, 4}) {
    for (int32_t e = 0; e < 16; ++e) index.push_back(page * 16 + e);
  }
  for (const int64_t position : {0, 16, 7}) {
    gather_entries(from.cells, index.data(), 32, to.cells, position);
    std::vector<float> got(32 * head_dim), want;
    load_rows(to.cells, position, 32, got.data(), head_dim);
    for (const int32_t e : index) {
      want.insert(want.end(), rows.begin() + e * head_dim, rows.begin() + (e + 1) * head_dim);
    }
    test::expect_same_bits(got, want, std::to_string(position));
  }
}

TEST(Cells, CopyingMovesEntriesAtAnyPositions) {
  constexpr int64_t head_dim = 16, n = 80;
  for (const CellKind kind : kKinds) {
    for (const auto& [from_position, to_position] : {std::pair<int64_t, int64_t>{0, 0}, {16, 32}, {5, 0}, {3, 19}}) {
      Buffer from(kind, DType::f16, head_dim, n), to(kind, DType::f16, head_dim, n);
      const std::vector<float> rows = rounded(normal(n * head_dim, 9), DType::f16);
      store_rows(from.cells, 0, n, rows.data(), head_dim);
      copy_entries(from.cells, from_position, 35, to.cells, to_position);
      std::vector<float> got(35 * head_dim);
      load_rows(to.cells, to_position, 35, got.data(), head_dim);
      test::expect_same_bits(got,
                             {rows.begin() + from_position * head_dim, rows.begin() + (from_position + 35) * head_dim},
                             std::to_string(from_position));
    }
  }
}

TEST(Cells, LeavingEntriesOutMovesAllBehindThemByAnyShift) {
  constexpr int64_t head_dim = 16, n = 70;
  for (const CellKind kind : kKinds) {
    for (const DType dtype : test::kDTypes) {
      const std::vector<float> rows = rounded(normal(n * head_dim, 7), dtype);
      for (int64_t shift = 1; shift <= 17; ++shift) {
        Buffer buffer(kind, dtype, head_dim, n);
        store_rows(buffer.cells, 0, n, rows.data(), head_dim);
        std::vector<int32_t> index{0, 1, 2};
        for (auto e = static_cast<int32_t>(3 + shift); e < n; ++e) index.push_back(e);
        const auto count = static_cast<int64_t>(index.size());
        gather_entries(buffer.cells, index.data(), count, buffer.cells, 0);
        std::vector<float> got(static_cast<size_t>(count * head_dim)), want;
        load_rows(buffer.cells, 0, count, got.data(), head_dim);
        for (const int32_t e : index) {
          want.insert(want.end(), rows.begin() + e * head_dim, rows.begin() + (e + 1) * head_dim);
        }
        test::expect_same_bits(got, want, std::string(name_of(dtype)) + " by " + std::to_string(shift));
      }
    }
  }
}

TEST(Cells, RunsOfDifferentKindsAreRefused) {
  Buffer keys(CellKind::keys, DType::f16, 16, 16), values(CellKind::values, DType::f16, 16, 16);
  EXPECT_THROW(copy_entries(keys.cells, 0, 1, values.cells, 0), std::logic_error);
}

}  // namespace
}  // namespace kvarena::kernels
