#include "harness/storage/link_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena::storage {
namespace {

/// Jie et al. 2025, arXiv:2503.16163, section 3.2: scattered memory takes about five times as long as contiguous. Their
/// piece is a head's key or value of Mistral-7B, 128 channels of 16 bits: four times its time on the link is the
/// piece's own.
constexpr double kScatteredFactor = 5;
constexpr double kPieceBytes = 256;
constexpr double piece_seconds(double bytes_per_s) { return (kScatteredFactor - 1) * kPieceBytes / bytes_per_s; }

/// About what starting one asynchronous copy takes.
constexpr double kBusLatency = 10e-6;
constexpr double kNetworkLatency = 50e-6;

LinkSpec bus(const char* name, double bytes_per_s, const char* source) {
  return {.name = name,
          .bytes_per_s = bytes_per_s,
          .latency_s = kBusLatency,
          .piece_s = piece_seconds(bytes_per_s),
          .source = fmt::format("{}; pieces after arXiv:2503.16163, figure 2", source)};
}

LinkSpec network(const char* name, double bytes_per_s) {
  return {.name = name,
          .bytes_per_s = bytes_per_s,
          .latency_s = kNetworkLatency,
          .piece_s = piece_seconds(bytes_per_s),
          .source = "IEEE 802.3, line rate"};
}

}  // namespace

double LinkSpec::seconds(int64_t bytes, int64_t pieces) const {
  if (!emulated()) return 0;
  return latency_s + static_cast<double>(pieces) * piece_s + static_cast<double>(bytes) / bytes_per_s;
}

LinkSpec at_rate(LinkSpec spec, double bytes_per_s) {
  if (!spec.emulated()) return spec;
  spec.piece_s *= spec.bytes_per_s / bytes_per_s;
  spec.bytes_per_s = bytes_per_s;
  spec.source += "; at another rate";
  return spec;
}

const std::vector<LinkSpec>& known_links() {
  static const std::vector<LinkSpec> links = {
      {.name = "real", .source = "this machine"},
      bus("pcie5_x16", 63.0e9, "PCI Express 5.0: 32 GT/s, 16 lanes, 128b/130b"),
      bus("pcie4_x16", 31.5e9, "PCI Express 4.0: 16 GT/s, 16 lanes, 128b/130b"),
      bus("pcie3_x16", 15.75e9, "PCI Express 3.0: 8 GT/s, 16 lanes, 128b/130b"),
      network("ethernet_100g", 12.5e9),
      network("ethernet_25g", 3.125e9),
      network("ethernet_10g", 1.25e9),
      network("ethernet_1g", 0.125e9),
  };
  return links;
}

const LinkSpec& link_named(const std::string& name, const std::string& place) {
  const auto& links = known_links();
  const auto found = std::ranges::find(links, name, &LinkSpec::name);
  if (found != links.end()) return *found;
  std::vector<std::string> names;
  for (const LinkSpec& link : links) names.push_back(link.name);
  fail({.place = place,
        .found = fmt::format("\"{}\"", name),
        .expected = fmt::format("one of {}", fmt::join(names, ", ")),
        .nearest = nearest_name(name, names)});
}

}  // namespace kvarena::storage
