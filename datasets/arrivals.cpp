#include "datasets/arrivals.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>

#include "harness/core/error.h"
#include "harness/core/random.h"

namespace kvarena::datasets {
namespace {

template <typename Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> columns(const std::string& line) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(',', begin), line.size());
    parts.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Days since 1970-01-01 of the proleptic Gregorian calendar (H. Hinnant, "chrono-compatible low-level date
// algorithms").
int64_t days_from_civil(int64_t year, int64_t month, int64_t day) {
  year -= month <= 2;
  const int64_t era = (year >= 0 ? year : year - 399) / 400;
  const int64_t year_of_era = year - era * 400;
  const int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

/// A draw of the gamma distribution with mean `shape`; rejected tries take further draws of the stream.
double gamma_draw(double shape, const RandomStream& draws) {
  uint64_t at = 0;
  const auto positive = [&] { return 1 - draws.uniform(at++); };
  const double lifted = shape < 1 ? shape + 1 : shape, d = lifted - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double radius = std::sqrt(-2 * std::log(positive()));
    const double normal = radius * std::cos(2 * std::numbers::pi * positive());
    const double root = 1 + c * normal, v = root * root * root;
    const double u = positive();
    if (root <= 0 || std::log(u) >= normal * normal / 2 + d - d * v + d * std::log(v)) continue;
    return d * v * (shape < 1 ? std::pow(positive(), 1 / shape) : 1);
  }
}

}  // namespace

std::optional<double> parse_timestamp(const std::string& text) {
  // YYYY-MM-DD HH:MM:SS
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[10] != ' ' || text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  int64_t field[6];
  const std::pair<size_t, size_t> places[] = {{0, 4}, {5, 2}, {8, 2}, {11, 2}, {14, 2}, {17, 2}};
  for (size_t i = 0; i < 6; ++i) {
    const auto value = number<int64_t>(std::string_view(text).substr(places[i].first, places[i].second));
    if (!value) return std::nullopt;
    field[i] = *value;
  }
  double fraction = 0;
  size_t zone = text.find_first_of("+-Z", 19);
  if (zone == std::string::npos) zone = text.size();
  if (zone > 19) {
    const auto value = number<double>(fmt::format("0{}", text.substr(19, zone - 19)));
    if (text[19] != '.' || !value) return std::nullopt;
    fraction = *value;
  }
  double offset_s = 0;
  if (zone < text.size() && text[zone] != 'Z') {
    const auto hours = number<int64_t>(std::string_view(text).substr(zone + 1, 2));
    const auto minutes = number<int64_t>(text.size() >= zone + 6 ? std::string_view(text).substr(zone + 4, 2) : "0");
    if (!hours || !minutes) return std::nullopt;
    offset_s = static_cast<double>(*hours * 3600 + *minutes * 60) * (text[zone] == '-' ? -1 : 1);
  }
  const int64_t whole =
      days_from_civil(field[0], field[1], field[2]) * 86400 + field[3] * 3600 + field[4] * 60 + field[5];
  return static_cast<double>(whole) + fraction - offset_s;
}

Arrival mooncake_arrival(const Row& row, const std::string& place) {
  Arrival arrival{.time_s = static_cast<double>(integer_field(row, "timestamp", place)) / 1000,
                  .prompt_tokens = integer_field(row, "input_length", place),
                  .output_tokens = integer_field(row, "output_length", place),
                  .blocks = {}};
  for (const Row& id : any_field(row, "hash_ids", place)) {
    if (!id.is_number_integer()) fail({.place = place, .found = id.dump(), .expected = "integers in \"hash_ids\""});
    arrival.blocks.push_back(id.get<int64_t>());
  }
  return arrival;
}

ArrivalReader::ArrivalReader(const std::filesystem::path& path) : path_(path), file_(path) {
  if (!file_) fail({.place = path.string(), .found = std::strerror(errno), .expected = "a readable trace file"});
  std::string header;
  std::getline(file_, header);
  line_ = 1;
  if (!header.empty() && header.back() == '\r') header.pop_back();
  if (header == "TIMESTAMP,ContextTokens,GeneratedTokens") {
    format_ = ArrivalFormat::azure;  // traces of 2023 and 2024 differ in the form of the times alone
  } else if (header.starts_with("Timestamp,") && header.find("Request tokens") != std::string::npos) {
    format_ = ArrivalFormat::burstgpt;
  } else if (header.starts_with("{")) {
    format_ = ArrivalFormat::mooncake;
    first_ = header;
    line_ = 0;
  } else {
    fail({.place = fmt::format("{}:1", path.string()),
          .found = header.substr(0, 80),
          .expected = "the header of an Azure or BurstGPT trace, or Mooncake's JSON Lines"});
  }
}

std::optional<Arrival> ArrivalReader::next() {
  std::string line;
  while (!first_.empty() || std::getline(file_, line)) {
    if (!first_.empty()) line = std::exchange(first_, {});
    ++line_;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    std::optional<Arrival> arrival = parse(line);
    if (!arrival) continue;
    if (!start_s_) start_s_ = arrival->time_s;
    arrival->time_s -= *start_s_;
    return arrival;
  }
  return std::nullopt;
}

std::optional<Arrival> ArrivalReader::parse(const std::string& line) const {
  const std::string place = fmt::format("{}:{}", path_.string(), line_);
  if (format_ == ArrivalFormat::mooncake) {
    return mooncake_arrival(parse_object({.text = line, .place = place}), place);
  }
  const std::vector<std::string> parts = columns(line);
  const bool burst = format_ == ArrivalFormat::burstgpt;  // Timestamp,Model,Request tokens,Response tokens,...
  if (parts.size() < (burst ? 4u : 3u)) {
    fail({.place = place, .found = fmt::format("{} columns", parts.size()), .expected = burst ? "at least 4" : "3"});
  }
  const auto time = burst ? number<double>(parts[0]) : parse_timestamp(parts[0]);
  const auto prompt = number<int64_t>(parts[burst ? 2 : 1]);
  const auto output = number<int64_t>(parts[burst ? 3 : 2]);
  if (!time || !prompt || !output) {
    fail({.place = place, .found = line.substr(0, 80), .expected = "a time and two token counts"});
  }
  if (burst && *output == 0) return std::nullopt;
  return Arrival{.time_s = *time, .prompt_tokens = *prompt, .output_tokens = *output};
}

std::vector<double> poisson_arrivals(double rate_per_s, size_t count, uint64_t seed) {
  KVARENA_ASSERT(rate_per_s > 0, fmt::format("rate_per_s={}", rate_per_s));
  const RandomStream draws(seed, "poisson arrivals");
  std::vector<double> times;
  double now = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) now += -std::log1p(-draws.uniform(i)) / rate_per_s;
    times.push_back(now);
  }
  return times;
}

std::vector<double> gamma_arrivals(double rate_per_s, double shape, size_t count, uint64_t seed) {
  KVARENA_ASSERT(rate_per_s > 0 && shape > 0, fmt::format("rate_per_s={} shape={}", rate_per_s, shape));
  std::vector<double> times;
  double now = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) now += gamma_draw(shape, RandomStream(seed, fmt::format("gamma arrival {}", i))) / (shape * rate_per_s);
    times.push_back(now);
  }
  return times;
}

}  // namespace kvarena::datasets
