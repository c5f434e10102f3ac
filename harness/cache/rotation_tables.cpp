#include "harness/cache/rotation_tables.h"

#include <algorithm>
#include <numeric>

#include "kernels/rope/rope.h"

namespace kvarena {

const RotationTables& rotation_tables_up_to(const std::vector<double>& frequencies, int32_t position) {
  static thread_local RotationTables tables;
  static thread_local std::vector<double> known;
  if (known != frequencies) {
    known = frequencies;
    tables = {};
  }
  const auto half = static_cast<int64_t>(frequencies.size());
  const auto have = static_cast<int64_t>(tables.cos.size()) / half;
  if (position < have) return tables;
  const int64_t rows = std::max<int64_t>(position + 1, have + have / 2 + 64);
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  std::iota(positions.begin(), positions.end(), 0);
  tables.cos.resize(static_cast<size_t>(rows * half));
  tables.sin.resize(tables.cos.size());
  kernels::rotation_tables(positions.data(), rows, frequencies.data(), half, 1, tables.cos.data(), tables.sin.data());
  return tables;
}

}  // namespace kvarena
