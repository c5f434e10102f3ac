#pragma once
// Efficiencies of a machine from the backend's benchmark, and the cost model's error against the measurements.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/cost_model/hardware.h"
#include "harness/cost_model/model_shape.h"

namespace kvarena::cost_model {

/// A row of `kvarena-backend-bench --benchmark_format=json`.
struct BenchRow {
  std::string name;
  bool decode = true;  // else a prompt's prefill
  int64_t weight_bits = 16;
  int64_t tokens = 0;  // cached before the step, or of the prompt
  int64_t sequences = 1;
  double seconds = 0;
  double read_bytes_per_second = 0;  // probed in the row's own run; 0 in a prefill row without one
  double peak_flop_per_second = 0;   // peak of fused multiply-adds; 0 in a decode row
};

/// Rows that can be compared; others (a failed one, another program's) are left out. Throws UserError naming the file
/// when it is no benchmark's JSON or holds no row of this kind.
[[nodiscard]] std::vector<BenchRow> parse_bench(const std::string& text, const std::string& place);
[[nodiscard]] std::vector<BenchRow> read_bench(const std::filesystem::path& file);

struct ValidatedRow {
  BenchRow row;
  double modelled_seconds = 0;
  bool calibrating = false;  // an efficiency was taken from it

  /// modelled / measured - 1.
  [[nodiscard]] double error() const { return modelled_seconds / row.seconds - 1; }
};

struct Calibration {
  /// Shares of the probes: memory from decoding at depth 0 with one sequence (weights alone), compute from the shortest
  /// prefill; medians over weight types.
  Efficiency efficiency;
  /// Efficiencies by width of the weights, since other kernels compute other widths; rows of a width are modelled by
  /// its own.
  std::map<int64_t, Efficiency> by_weight_bits;
  std::vector<ValidatedRow> rows;    // all, each with the probes of its own run
  double read_bytes_per_second = 0;  // median probe
  double peak_flop_per_second = 0;

  /// The median of |error| over the rows that nothing was taken from; 0 when there are none.
  [[nodiscard]] double median_error() const;
};

/// Efficiencies from the rows, and every row modelled with them. `shape` is the benchmarked model. Throws UserError
/// when a row that is needed is missing.
[[nodiscard]] Calibration calibrate(const std::vector<BenchRow>& rows, const ModelShape& shape,
                                    const std::string& place);

/// The machine that was benchmarked: memory as `memory_bytes`, bandwidth and FLOP/s as probed.
[[nodiscard]] Hardware calibrated_machine(const Calibration& calibration, double memory_bytes);

}  // namespace kvarena::cost_model
