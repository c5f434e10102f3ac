#include "kernels/common/cpu_path.h"

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(KVARENA_X86_PATHS)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace kvarena::kernels {
namespace {

#if defined(KVARENA_X86_PATHS)
/// Leaf 1, ECX: a name that Clang 16's __builtin_cpu_supports does not know.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

/// Tiles and their bf16 products (leaf 7, EDX: names that not every compiler's header has), and leave to use them: the
/// system saves 8 KiB more of a thread and wants to be asked once a process.
bool has_tiles() {
#if defined(KVARENA_EMULATED_TILES)
  return true;
#elif defined(__linux__)
  constexpr unsigned kTileBf16 = 1U << 22, kTile = 1U << 24;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h, XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTile) == 0 || (d & kTileBf16) == 0) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

std::vector<CpuPath> find_paths() {
  std::vector<CpuPath> paths{CpuPath::reference};
#if defined(KVARENA_X86_PATHS)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
    paths.push_back(CpuPath::avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      paths.push_back(CpuPath::avx512);
      if (__builtin_cpu_supports("avx512vnni")) {
        paths.push_back(CpuPath::avx512vnni);
        if (__builtin_cpu_supports("avx512bf16")) {
          paths.push_back(CpuPath::avx512bf16);
          if (has_tiles()) paths.push_back(CpuPath::amx);
        }
      }
    }
  }
#endif
  return paths;
}

CpuPath choose() {
  const char* wanted = std::getenv("KVARENA_CPU");
  return wanted != nullptr && *wanted != '\0' ? parse_cpu_path(wanted) : available_cpu_paths().back();
}

std::atomic<CpuPath>& active() {
  static std::atomic<CpuPath> path{choose()};
  return path;
}

}  // namespace

const char* name_of(CpuPath path) {
  switch (path) {
    case CpuPath::reference: return "reference";
    case CpuPath::avx2: return "avx2";
    case CpuPath::avx512: return "avx512";
    case CpuPath::avx512vnni: return "avx512vnni";
    case CpuPath::avx512bf16: return "avx512bf16";
    case CpuPath::amx: return "amx";
  }
  return "?";
}

const std::vector<CpuPath>& available_cpu_paths() {
  static const std::vector<CpuPath> paths = find_paths();
  return paths;
}

CpuPath parse_cpu_path(std::string_view name) {
  std::string allowed;
  for (const CpuPath path : available_cpu_paths()) {
    if (name == name_of(path)) return path;
    allowed += allowed.empty() ? name_of(path) : std::string(", ") + name_of(path);
  }
  throw std::invalid_argument("environment variable KVARENA_CPU: found \"" + std::string(name) +
                              "\", expected one of the paths this build and CPU have: " + allowed +
                              "; unset it to take the fastest");
}

CpuPath active_cpu_path() { return active().load(std::memory_order_relaxed); }

ScopedCpuPath::ScopedCpuPath(CpuPath path) : before_(active_cpu_path()) { active().store(path); }
ScopedCpuPath::~ScopedCpuPath() { active().store(before_); }

}  // namespace kvarena::kernels
