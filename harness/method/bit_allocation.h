#pragma once
// Widths of the components of a transform: runs of components that share a scale and a shift, chosen for the least
// error within a budget of bits.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvarena {

inline constexpr std::array<int64_t, 5> kRunSizes = {1, 16, 64, 256, 1024};
inline constexpr std::array<int64_t, 3> kRunBits = {8, 4, 2};
inline constexpr int64_t kRunUnit = 16;     // bits that a budget is counted in; every run costs a multiple
inline constexpr int64_t kRunAlign = 16;    // longer runs begin at multiples of it
inline constexpr int64_t kRunSingles = 64;  // components that may be runs of their own: those of most variance

/// Consecutive components that share a scale and a shift per token; of a run of one, the shift is the number.
struct ComponentRun {
  int64_t first = 0;
  int64_t size = 0;
  int64_t bits = 0;

  [[nodiscard]] int64_t cost() const { return size == 1 ? 16 : 32 + size * bits; }
  [[nodiscard]] int64_t bytes(int64_t tokens) const {
    return size == 1 ? 2 * tokens : 4 * tokens + (tokens * size * bits + 7) / 8;
  }
};

/// Squared error that each possible run adds to a calibration row, [kRunSizes][kRunBits][components] by its first
/// component, 0 where no run of this kind begins; and the error that leaving out a component adds.
struct RunErrors {
  int64_t components = 0;
  std::vector<float> errors;
  std::vector<float> variance;

  [[nodiscard]] float of(size_t size, size_t bits, int64_t first) const {
    return errors[(size * kRunBits.size() + bits) * components + first];
  }
};

/// The runs of least error within `budget` bits a token, from component 0 on without a gap, widths never rising along
/// the components, what they do not reach left out.
[[nodiscard]] std::vector<ComponentRun> allocate_bits(const RunErrors& errors, int64_t budget);

}  // namespace kvarena
