#include "harness/cache/rotation_tables.h"

#include <algorithm>
#include <numeric>

#include "kernels/cells/cells.h"
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
  const int64_t rows = kernels::cells_for(std::max<int64_t>(position + 1, have + have / 2 + 64)) * kernels::kCell;
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  std::iota(positions.begin(), positions.end(), 0);
  for (std::vector<float>* const side : {&tables.cos, &tables.sin, &tables.cell_cos, &tables.cell_sin})
    side->resize(static_cast<size_t>(rows * half));
  kernels::rotation_tables(positions.data(), rows, frequencies.data(), half, 1, tables.cos.data(), tables.sin.data());
  const auto to_cells = [&](const std::vector<float>& from, std::vector<float>& to) {
    for (int64_t i = 0; i < rows * half; ++i)
      to[kernels::cell_offset(kernels::CellKind::keys, half, i / half, i % half)] = from[i];
  };
  to_cells(tables.cos, tables.cell_cos);
  to_cells(tables.sin, tables.cell_sin);
  return tables;
}

}  // namespace kvarena
