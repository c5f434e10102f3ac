#pragma once
// Memory of PackedEntries for tests; what no entry owns is NaN, so that whoever interprets it is found out.

#include "kernels/quantize/quantize.h"
#include "tests/kernels/support.h"

namespace kvarena::kernels::test {

struct PackedMemory {
  std::vector<uint32_t> codes;
  std::vector<uint16_t> scale, zero;
  PackedEntries view;
  PackedMemory(CellKind kind, const QuantFormat& format, int64_t head_dim, int64_t entries)
      : codes(static_cast<size_t>(packed_code_dwords(entries, head_dim, format.bits)), 0xffffffffu),
        scale(static_cast<size_t>(packed_meta_count(kind, entries, head_dim, format.group_size)), uint16_t{0xffff}),
        zero(scale),
        view{kind, format, head_dim, codes.data(), scale.data(), zero.data()} {}
  PackedMemory(PackedMemory&& other) noexcept
      : codes(std::move(other.codes)), scale(std::move(other.scale)), zero(std::move(other.zero)), view(other.view) {}
};

}  // namespace kvarena::kernels::test
