#pragma once
// Choice of the kernels' instruction set: made once, at the first call, among those of this CPU.

#include <string_view>
#include <vector>

namespace kvarena::kernels {

/// `reference` is plain C++ and serves every machine; `avx2` needs AVX2, FMA and F16C; `avx512` needs AVX-512
/// F, BW, VL and DQ, `avx512vnni` its integer products as well, `avx512bf16` those and its products of bf16 pairs,
/// `amx` all that, the tile registers and their bf16 products, with the system's leave to use them. All but the first
/// and the last run the same operations in the same order on 16 lanes: their results are equal bit for bit. The
/// reference computes in another order and precision and agrees within rounding; so do products with bf16 weights on
/// the amx path (matmul/matmul.h), which else is avx512bf16.
enum class CpuPath { reference, avx2, avx512, avx512vnni, avx512bf16, amx };

[[nodiscard]] const char* name_of(CpuPath path);

/// The paths this build contains and this CPU can run, slowest first; `reference` is always there.
[[nodiscard]] const std::vector<CpuPath>& available_cpu_paths();

/// The path in force: the widest available, or what the environment variable KVARENA_CPU (reference, avx2, avx512,
/// avx512vnni, avx512bf16, amx) asks for. Throws std::invalid_argument when that names an unknown path or one this CPU
/// cannot run.
[[nodiscard]] CpuPath active_cpu_path();

/// The path that `name` asks for; throws std::invalid_argument as active_cpu_path() does.
[[nodiscard]] CpuPath parse_cpu_path(std::string_view name);

/// Forces a path while it lives. For tests and benchmarks: not to be used while other threads run kernels.
class ScopedCpuPath {
 public:
  explicit ScopedCpuPath(CpuPath path);
  ~ScopedCpuPath();
  ScopedCpuPath(const ScopedCpuPath&) = delete;
  ScopedCpuPath& operator=(const ScopedCpuPath&) = delete;

 private:
  CpuPath before_;
};

}  // namespace kvarena::kernels
