#include "harness/cost_model/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/cost_model/description.h"
#include "harness/cost_model/roofline.h"

namespace kvarena::cost_model {
namespace {

using nlohmann::json;

/// The number after a key in a row's name: 8192 of ".../depth:8192/...".
std::optional<int64_t> named_number(const std::string& name, const std::string& key) {
  const size_t at = name.find("/" + key + ":");
  if (at == std::string::npos) return std::nullopt;
  int64_t number = 0;
  const char* first = name.data() + at + key.size() + 2;
  const auto [end, error] = std::from_chars(first, name.data() + name.size(), number);
  if (error != std::errc() || end == first || number < 0) return std::nullopt;
  return number;
}

double seconds_of(const json& row) {
  const std::string unit = row.value("time_unit", "ns");
  const double scale = unit == "s" ? 1 : unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : 1e-9;
  return row.value("real_time", 0.0) * scale;
}

std::optional<BenchRow> bench_row(const json& row) {
  if (!row.is_object() || row.value("run_type", "iteration") != "iteration" || row.contains("error_occurred"))
    return {};
  BenchRow found{.name = row.value("name", "")};
  found.decode = found.name.starts_with("decode_bench/");
  if (!found.decode && !found.name.starts_with("prefill_bench/")) return {};
  found.weight_bits = found.name.find("/f32/") != std::string::npos ? 32 : 16;
  const std::optional<int64_t> tokens = named_number(found.name, found.decode ? "depth" : "tokens");
  if (!tokens) return {};
  found.tokens = *tokens;
  found.sequences = named_number(found.name, "sequences").value_or(1);
  found.seconds = seconds_of(row);
  if (found.decode) {
    found.read_bytes_per_second = 1e9 * row.value("read_GB/s", 0.0);
  } else if (row.value("of_fma", 0.0) > 0) {
    found.peak_flop_per_second = row.value("flops", 0.0) / row.value("of_fma", 1.0);
  }
  const double limit = found.decode ? found.read_bytes_per_second : found.peak_flop_per_second;
  if (!(found.seconds > 0) || !(limit > 0)) return {};
  return found;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Shares of the peaks that rows reached.
struct Shares {
  std::vector<double> memory;
  std::vector<double> compute;
};

/// A machine with the probes of one row; what the row did not probe is as good as unlimited.
Hardware machine_of(const BenchRow& row, const Efficiency& efficiency) {
  constexpr double unlimited = 1e9;
  Hardware machine{.name = "benchmarked", .efficiency = efficiency};
  machine.memory_gb_per_s.value = row.read_bytes_per_second > 0 ? row.read_bytes_per_second / 1e9 : unlimited;
  machine.compute_tflop_per_s.value = row.peak_flop_per_second > 0 ? row.peak_flop_per_second / 1e12 : unlimited;
  return machine;
}

double modelled_seconds(const BenchRow& row, const ModelShape& shape, const Efficiency& efficiency) {
  const Hardware machine = machine_of(row, efficiency);
  if (!row.decode) return prefill_seconds(machine, shape, row.sequences, row.tokens, row.weight_bits);
  return decode_step(machine, shape, {}, row.sequences, static_cast<double>(row.tokens), row.weight_bits).seconds;
}

}  // namespace

std::vector<BenchRow> parse_bench(const std::string& text, const std::string& place) {
  const json whole = parse_object(text, place);
  std::vector<BenchRow> rows;
  for (const json& row : whole.value("benchmarks", json::array())) {
    if (const std::optional<BenchRow> found = bench_row(row)) rows.push_back(*found);
  }
  if (rows.empty()) {
    fail({.place = place,
          .found = "no row of decode_bench or prefill_bench with its probe",
          .expected = "what kvarena-backend-bench --benchmark_format=json writes"});
  }
  return rows;
}

std::vector<BenchRow> read_bench(const std::filesystem::path& file) {
  return parse_bench(read_file(file), file.string());
}

double Calibration::median_error() const {
  std::vector<double> errors;
  for (const ValidatedRow& row : rows) {
    if (!row.calibrating) errors.push_back(std::abs(row.error()));
  }
  return median(std::move(errors));
}

Calibration calibrate(const std::vector<BenchRow>& rows, const ModelShape& shape, const std::string& place) {
  int64_t shortest = std::numeric_limits<int64_t>::max();
  for (const BenchRow& row : rows) {
    if (!row.decode) shortest = std::min(shortest, row.tokens);
  }
  const Efficiency whole{.memory = 1, .compute = 1, .link = 1, .usable_memory = 1};
  Calibration result;
  std::vector<double> memory, compute, reads, peaks;
  std::map<int64_t, Shares> by_bits;
  for (const BenchRow& row : rows) {
    const bool weights_alone = row.decode && row.tokens == 0 && row.sequences == 1;
    const bool calibrating = weights_alone || (!row.decode && row.tokens == shortest);
    result.rows.push_back({.row = row, .calibrating = calibrating});
    (row.decode ? reads : peaks).push_back(row.decode ? row.read_bytes_per_second : row.peak_flop_per_second);
    if (!calibrating) continue;
    const double share = modelled_seconds(row, shape, whole) / row.seconds;
    (row.decode ? memory : compute).push_back(share);
    Shares& own = by_bits[row.weight_bits];
    (row.decode ? own.memory : own.compute).push_back(share);
  }
  if (memory.empty() || compute.empty()) {
    fail({.place = place,
          .found = memory.empty() ? "no decode_bench row at depth 0 with 1 sequence" : "no prefill_bench row",
          .expected = "both: efficiencies of memory and of compute are taken from them"});
  }
  const std::string source = fmt::format(
      "measured: {}; shares of the probes of the same run, links and usable memory as assumed elsewhere", place);
  const auto efficiency = [&](const Shares& shares) {
    // A share above 1 would say that the probe was disturbed, not that the program outran the machine.
    return Efficiency{.memory = std::min(1.0, median(shares.memory.empty() ? memory : shares.memory)),
                      .compute = std::min(1.0, median(shares.compute.empty() ? compute : shares.compute)),
                      .source = source};
  };
  result.efficiency = efficiency({});
  for (const auto& [bits, shares] : by_bits) result.by_weight_bits.emplace(bits, efficiency(shares));
  result.read_bytes_per_second = median(reads);
  result.peak_flop_per_second = median(peaks);
  for (ValidatedRow& row : result.rows) {
    const auto own = result.by_weight_bits.find(row.row.weight_bits);
    row.modelled_seconds =
        modelled_seconds(row.row, shape, own == result.by_weight_bits.end() ? result.efficiency : own->second);
  }
  return result;
}

Hardware calibrated_machine(const Calibration& calibration, double memory_bytes) {
  const std::string probe = "probe of the benchmark's run, median";
  return {.name = "this",
          .title = "the benchmarked machine",
          .memory_gib = {.value = memory_bytes / (1024.0 * 1024 * 1024), .source = "the operating system"},
          .memory_gb_per_s = {.value = calibration.read_bytes_per_second / 1e9, .source = probe},
          .compute_tflop_per_s = {.value = calibration.peak_flop_per_second / 1e12, .source = probe},
          .efficiency = calibration.efficiency};
}

}  // namespace kvarena::cost_model
