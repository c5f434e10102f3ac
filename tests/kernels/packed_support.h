#pragma once
// Memory of PackedEntries for tests; scales that no entry owns are NaN and codes have all bits set (the float formats'
// are 0: their bits must stand for numbers), so that whoever interprets them is found out.

#include "kernels/quantize/quantize.h"
#include "tests/kernels/support.h"

namespace kvarena::kernels::test {

struct PackedMemory {
  std::vector<uint32_t> codes;
  std::vector<uint16_t> scale, zero;
  PackedEntries view;
  PackedMemory(CellKind kind, const QuantFormat& format, int64_t head_dim, int64_t entries)
      : codes(static_cast<size_t>(packed_code_dwords(entries, head_dim, format.bits)),
              format.levels == Levels::e4m3 || format.levels == Levels::e5m2 ? 0 : 0xffffffffu),
        scale(static_cast<size_t>(packed_meta_count(kind, entries, head_dim, format)), uint16_t{0xffff}),
        zero(scale),
        view{kind,
             format,
             head_dim,
             codes.data(),
             stores_scale(format) ? scale.data() : nullptr,
             stores_zero(format) ? zero.data() : nullptr} {}
  PackedMemory(PackedMemory&& other) noexcept
      : codes(std::move(other.codes)), scale(std::move(other.scale)), zero(std::move(other.zero)), view(other.view) {}
};

}  // namespace kvarena::kernels::test
