#include "harness/cli/npy.h"

#include <fmt/format.h>

#include <bit>

#include "harness/core/error.h"

namespace kvarena::cli {

std::string npy_matrix(std::span<const float> values, int64_t rows, int64_t columns) {
  static_assert(std::endian::native == std::endian::little);
  KVARENA_ASSERT(static_cast<int64_t>(values.size()) == rows * columns, fmt::format("{} x {}", rows, columns));
  constexpr size_t kFixed = 10;  // magic, version, header length
  constexpr size_t kAlign = 64;  // alignment of the data that the format requires
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  header.append((kAlign - (kFixed + header.size() + 1) % kAlign) % kAlign, ' ').append(1, '\n');
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes.append(1, static_cast<char>(header.size() & 0xFFU)).append(1, static_cast<char>(header.size() >> 8U));
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return bytes;
}

}  // namespace kvarena::cli
