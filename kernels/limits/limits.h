#pragma once
// Measured peaks of this machine, which benchmarks and reports put beside their figures. Both functions use
// thread_count() threads and the path in force.

namespace kvarena::kernels {

/// Bytes a second read from DRAM: every thread walks eight streams through memory far larger than the caches (512 MiB
/// in all, kept for the next call). Runs about `seconds`, returns the best of its passes.
[[nodiscard]] double measure_read_bandwidth(double seconds);

/// Float32 operations a second (a fused multiply-add counts two) from registers. Runs about `seconds`.
[[nodiscard]] double measure_fma_peak(double seconds);

}  // namespace kvarena::kernels
