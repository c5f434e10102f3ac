#pragma once
// Lookup of a kernel's functions for the path in force.

#include "kernels/common/cpu_path.h"

namespace kvarena::kernels {

/// The table of the active path; null on the reference path.
template <class Table>
[[nodiscard]] const Table* active_table(const Table& avx2, const Table& avx512) {
  switch (active_cpu_path()) {
    case CpuPath::reference: return nullptr;
    case CpuPath::avx2: return &avx2;
    case CpuPath::avx512:
    case CpuPath::avx512vnni:
    case CpuPath::avx512bf16:
    case CpuPath::amx: return &avx512;
  }
  return nullptr;
}
/// The table of the active path for a kernel whose own is `wider` from the path `from` on; null on the reference path.
template <class Table>
[[nodiscard]] const Table* active_table(const Table& avx2, const Table& avx512, CpuPath from, const Table& wider) {
  return active_cpu_path() >= from ? &wider : active_table(avx2, avx512);
}

}  // namespace kvarena::kernels

// Each kernel declares a struct of function pointers and one object of it per path:
//   KVARENA_DECLARE_TABLE(MatmulTable, matmul_table);
//   if (const MatmulTable* fast = KVARENA_ACTIVE_TABLE(matmul_table)) ...
// A kernel that multiplies pairs of integers says INTEGER_TABLE, one that multiplies pairs of bf16 numbers BF16_TABLE;
// others run their AVX-512 functions on the paths that have such products. The amx path is that of bf16 pairs but for
// products with weights (matmul_paths.h).
#define KVARENA_DECLARE_TABLE(type, name) \
  namespace avx2 {                        \
  extern const type name;                 \
  }                                       \
  namespace avx512 {                      \
  extern const type name;                 \
  }                                       \
  static_assert(true)

#define KVARENA_DECLARE_INTEGER_TABLE(type, name) \
  KVARENA_DECLARE_TABLE(type, name);              \
  namespace avx512vnni {                          \
  extern const type name;                         \
  }                                               \
  static_assert(true)

#define KVARENA_DECLARE_BF16_TABLE(type, name) \
  KVARENA_DECLARE_TABLE(type, name);           \
  namespace avx512bf16 {                       \
  extern const type name;                      \
  }                                            \
  static_assert(true)

#if defined(KVARENA_X86_PATHS)
#define KVARENA_ACTIVE_TABLE(name) ::kvarena::kernels::active_table(avx2::name, avx512::name)
#define KVARENA_ACTIVE_INTEGER_TABLE(name) \
  ::kvarena::kernels::active_table(avx2::name, avx512::name, CpuPath::avx512vnni, avx512vnni::name)
#define KVARENA_ACTIVE_BF16_TABLE(name) \
  ::kvarena::kernels::active_table(avx2::name, avx512::name, CpuPath::avx512bf16, avx512bf16::name)
#else
#define KVARENA_ACTIVE_TABLE(name) static_cast<decltype(&avx2::name)>(nullptr)
#define KVARENA_ACTIVE_INTEGER_TABLE(name) KVARENA_ACTIVE_TABLE(name)
#define KVARENA_ACTIVE_BF16_TABLE(name) KVARENA_ACTIVE_TABLE(name)
#endif
