#pragma once
// Arrival times and lengths of requests: traces of real services, and random arrivals. Section 18 of the workload
// sheet. The serving engine replays them with texts of a workload.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "datasets/records.h"

namespace kvarena::datasets {

/// One request of a trace.
struct Arrival {
  double time_s = 0;  // since the first request of the trace
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  std::vector<int64_t> blocks;  // Mooncake: ids of the 512-token blocks of the prompt; equal ids are a shared prefix
};

/// A row of Mooncake's. Throws UserError naming the place.
[[nodiscard]] Arrival mooncake_arrival(const Row& row, const std::string& place);

enum class ArrivalFormat { azure, burstgpt, mooncake };

/// Reads a trace file row by row; times need not be sorted in the file and are not sorted here.
class ArrivalReader {
 public:
  /// Recognises the format by the header line (CSV) or the first character (JSON Lines). Throws UserError naming the
  /// file when it cannot be opened or is none of the three.
  explicit ArrivalReader(const std::filesystem::path& path);

  [[nodiscard]] ArrivalFormat format() const { return format_; }
  /// Next request, or nothing at the end. BurstGPT rows without an answer are failures and are left out. Throws
  /// UserError naming file and line.
  [[nodiscard]] std::optional<Arrival> next();

 private:
  std::optional<Arrival> parse(const std::string& line) const;
  std::filesystem::path path_;
  std::ifstream file_;
  ArrivalFormat format_ = ArrivalFormat::azure;
  int64_t line_ = 0;
  std::string first_;  // JSON Lines: the line that was read to recognise the format
  std::optional<double> start_s_;
};

/// Seconds since 1970 of "2023-11-16 18:17:03.9799600" or "2024-05-10 00:00:00.009930+00:00"; any number of fractional
/// digits, zone optional (UTC without one). Nothing when it is not such a time.
[[nodiscard]] std::optional<double> parse_timestamp(const std::string& text);

/// `count` arrival times: exponential gaps of mean 1 / rate_per_s, the first at 0.
[[nodiscard]] std::vector<double> poisson_arrivals(double rate_per_s, size_t count, uint64_t seed);

/// poisson_arrivals() with gaps of a gamma distribution of the same mean: below a `shape` of 1 requests come in bursts,
/// above it more evenly. Marsaglia and Tsang 2000, ACM TOMS 26(3).
[[nodiscard]] std::vector<double> gamma_arrivals(double rate_per_s, double shape, size_t count, uint64_t seed);

}  // namespace kvarena::datasets
