#include <algorithm>

#include "harness/core/error.h"
#include "harness/cost_model/comparison_parts.h"

namespace kvarena::cost_model {
namespace {

struct Row {
  std::string label;
  int64_t context = 0;
  int64_t batch = 1;
  std::optional<int64_t> moved;  // entries of a request that come over the link; all unless given
  double anew = 1;               // share of them that the step before did not have
  double rate_share = 1;         // share of a contiguous copy's rate that these entries reach

  void parameters(ParameterVisitor& p) {
    p("label", label).required();
    p("context", context).min(1).required().doc("entries that are cached");
    p("batch", batch).min(1);
    p("moved", moved).min(1).doc("entries of a request that come over the link; all unless given");
    p("anew", anew).min(0).max(1).doc("share of them that the step before did not have");
    p("rate_share", rate_share).above(0).max(1).doc("of a contiguous copy's rate that these entries reach");
  }
};

/// Keys and values of `entries` in 16 bits over the host link, all requests and layers, as one copy each.
double contiguous_seconds(const Hardware& hardware, const ModelShape& shape, double entries) {
  const double bytes = 2.0 * entries * static_cast<double>(shape.numbers_per_entry());
  return bytes / (hardware.host_link_bytes_per_second() * hardware.efficiency.link);
}

}  // namespace

std::vector<ComparedFigure> compare_transfers(ComparisonReader& reader) {
  return reader.each_row([&](const nlohmann::json& json, const std::string& place) {
    Row row;
    const CacheScheme scheme = read_row_and_scheme(json, place, [&](ParameterVisitor& p) { row.parameters(p); });

    const Hardware hardware = reader.hardware(json, place);
    const ModelShape shape = reader.shape(json, place);
    if (hardware.host_link_bytes_per_second() <= 0) {
      fail({.place = place + ".hardware", .found = hardware.title, .expected = "a machine with a host link"});
    }
    const auto requests = static_cast<double>(row.batch), layers = static_cast<double>(shape.layers);
    const auto cached = requests * static_cast<double>(row.context);
    const double moved = requests * static_cast<double>(std::min(row.moved.value_or(row.context), row.context));
    const double transfer = contiguous_seconds(hardware, shape, moved * row.anew) / row.rate_share;
    const double step = decode_step(hardware, shape, scheme, row.batch, static_cast<double>(row.context)).seconds;
    return reader.compare(
        json, place,
        {{"step, ms", 1e3 * step},
         {"layer, ms", 1e3 * step / layers},
         {"transfer, ms", 1e3 * transfer},
         {"transfer of a layer, ms", 1e3 * transfer / layers},
         {"transfer over step", transfer / step},
         {"of the whole cache's transfer, %", 100 * transfer / contiguous_seconds(hardware, shape, cached)}});
  });
}

}  // namespace kvarena::cost_model
