#include "kernels/cells/cells_paths.h"

namespace kvarena::kernels {

void store_entry(const Cells& to, int64_t entry, const float* row) {
  for (int64_t c = 0; c < to.head_dim; ++c) {
    store_element(to.data, to.dtype, cell_offset(to.kind, to.head_dim, entry, c), row[c]);
  }
}

void load_entry(const Cells& from, int64_t entry, float* row) {
  for (int64_t c = 0; c < from.head_dim; ++c) {
    row[c] = load_element(from.data, from.dtype, cell_offset(from.kind, from.head_dim, entry, c));
  }
}

namespace {

template <class Bits>
void copy_bits(const Cells& from, int64_t from_entry, const Cells& to, int64_t to_entry) {
  const Bits* source = static_cast<const Bits*>(from.data) + cell_offset(from.kind, from.head_dim, from_entry, 0);
  Bits* target = static_cast<Bits*>(to.data) + cell_offset(to.kind, to.head_dim, to_entry, 0);
  const int64_t step = from.kind == CellKind::keys ? kCell : 1;
  for (int64_t c = 0; c < from.head_dim; ++c) target[c * step] = source[c * step];
}

}  // namespace

void copy_entry(const Cells& from, int64_t from_entry, const Cells& to, int64_t to_entry) {
  if (from.dtype == DType::f32) {
    copy_bits<uint32_t>(from, from_entry, to, to_entry);
  } else {
    copy_bits<uint16_t>(from, from_entry, to, to_entry);
  }
}

}  // namespace kvarena::kernels
