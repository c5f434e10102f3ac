#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "harness/core/error.h"
#include "harness/core/parameters.h"
#include "harness/cost_model/comparison_parts.h"
#include "harness/cost_model/description.h"
#include "harness/cost_model/remote_prefix.h"
#include "harness/cost_model/staggered_decoding.h"

namespace kvarena::cost_model {
namespace {

struct Row {
  std::string label;
  std::optional<int64_t> context;  // absent: the one whose full-KV rate is nearest to the published
  double kept = 0;
  int64_t draft_length = 0;
  double accepted = 0;      // tokens of `accepted_of` drafted ones, as published
  int64_t accepted_of = 0;  //
  double auxiliary = 0;     // tokens that an auxiliary drafter adds at each drafted one, Appendix C
  bool strict_link = false;
  int64_t output = 0;  // tokens of a request, remote prefix reuse only
  int64_t local = 1;
  int64_t remote = 4;
  std::optional<int64_t> most_remote;

  void parameters(ParameterVisitor& p) {
    p("label", label).required();
    p("context", context).min(1).doc("absent: found from the published rate of full KV, which is then no comparison");
    p("kept", kept).above(0).max(1).required();
    p("draft_length", draft_length).min(1).required();
    p("accepted", accepted).above(0).required();
    p("accepted_of", accepted_of).min(1).required();
    p("auxiliary", auxiliary).min(0).doc("accepted tokens of an auxiliary drafter at each outer position");
    p("strict_link", strict_link).doc("charge every byte of a reload, as Eq. 8 does not");
    p("output", output).min(0);
    p("local", local).min(1);
    p("remote", remote).min(1);
    p("most_remote", most_remote).min(1).doc("compare the number of remote instances, 1 to this, that gains most");
  }
};

const std::vector<std::string> kRowKeys = {"hardware", "shape", "published", "shown", "unknown", "derived", "repeats"};

Row read_row(const nlohmann::json& json, const std::string& place) {
  Row row;
  throw_problems(read_parameters(
      json, place, [&](ParameterVisitor& p) { row.parameters(p); }, kRowKeys));
  if (row.accepted > static_cast<double>(row.accepted_of)) {
    fail({.place = place + ".accepted",
          .found = brief(json["accepted"]),
          .expected = "at most accepted_of",
          .action = "both are tokens"});
  }
  return row;
}

/// gamma(draft_length) when tokens are accepted independently, with the probability that gives the published length.
double acceptance(const Row& row) {
  double low = 0, high = 1;
  for (int64_t halving = 0; halving < 60; ++halving) {
    const double beta = (low + high) / 2;
    const AcceptanceCurve curve = AcceptanceCurve::independent(beta, row.accepted_of);
    (curve.accepted(row.accepted_of) < row.accepted ? low : high) = beta;
  }
  return AcceptanceCurve::independent(high, row.draft_length).rate(row.draft_length);
}

double cache_bytes(const ModelShape& shape, int64_t context) {
  return 2.0 * static_cast<double>(shape.numbers_per_entry() * context);
}
double weight_bytes(const ModelShape& shape) { return 2.0 * static_cast<double>(shape.parameter_count()); }

constexpr const char* kFullRate = "full KV, tokens/s";

/// Rates of full KV and the method, in tokens a second.
struct Rates {
  double full = 0;
  double method = 0;
};

/// The context at which full KV's rate, which falls with it, is nearest to a published one; 0 where nothing fits.
int64_t context_at_rate(double published, const std::function<std::optional<Rates>(int64_t)>& at) {
  constexpr int64_t kLongest = 1 << 20;
  int64_t shorter = 0, longer = kLongest;
  while (longer - shorter > 1) {
    const int64_t middle = std::midpoint(shorter, longer);
    const std::optional<Rates> rates = at(middle);
    (rates && rates->full >= published ? shorter : longer) = middle;
  }
  const auto distance = [&](int64_t context) {
    const std::optional<Rates> rates = context > 0 ? at(context) : std::nullopt;
    return rates ? std::abs(rates->full - published) : std::numeric_limits<double>::infinity();
  };
  return distance(longer) < distance(shorter) ? longer : shorter;  // a request less in memory is a step of the rate
}

/// Figures of one row at the context that the row states or, where the paper states none, at the one that makes full
/// KV's rate what was published: one published figure is spent on one unknown, and said to be.
std::vector<ComparedFigure> compare_row(const ComparisonReader& reader, nlohmann::json json, const std::string& place,
                                        const Row& row, const std::function<std::optional<Rates>(int64_t)>& at) {
  int64_t context = row.context.value_or(0);
  if (!row.context) {
    const nlohmann::json published = json.value("published", nlohmann::json::object());
    if (!published.contains(kFullRate)) {
      fail({.place = place + ".context",
            .found = "nothing",
            .expected = "tokens",
            .action = fmt::format("or a published \"{}\" to find it from", kFullRate)});
    }
    context = context_at_rate(published[kFullRate].get<double>(), at);
    json["label"] = fmt::format("{}, context {}", row.label, context);
  }
  const std::optional<Rates> rates = context > 0 ? at(context) : std::nullopt;
  if (!rates) fail({.place = place, .found = "not even one request fits", .expected = "a shorter context"});
  std::vector<ComparedFigure> figures = reader.compare(
      json, place, {{kFullRate, rates->full}, {"tokens/s", rates->method}, {"speed-up", rates->method / rates->full}});
  for (ComparedFigure& figure : figures) figure.spent = !row.context && figure.quantity == kFullRate;
  return figures;
}

}  // namespace

std::vector<ComparedFigure> compare_staggered(ComparisonReader& reader) {
  return reader.each_row([&](const nlohmann::json& json, const std::string& place) {
    const Row row = read_row(json, place);
    const Hardware hardware = reader.hardware(json, place);
    const ModelShape shape = reader.shape(json, place);
    const Efficiency& reached = hardware.efficiency;
    const DecodingMachine machine{.memory_bytes = hardware.memory_bytes() * reached.usable_memory,
                                  .memory_bandwidth = hardware.memory_bytes_per_second() * reached.memory,
                                  .link_bandwidth = hardware.host_link_bytes_per_second() * reached.link};
    // Appendix C: every accepted outer token brings the auxiliary drafter's.
    const double gamma = acceptance(row) * (1 + row.auxiliary);
    return compare_row(reader, json, place, row, [&](int64_t context) -> std::optional<Rates> {
      const DecodingLoad load{.weight_bytes = weight_bytes(shape), .cache_bytes = cache_bytes(shape, context)};
      const auto best = best_plan(
          machine, load, {.draft_lengths = {row.draft_length}, .kept = {row.kept}},
          [gamma](int64_t, double) { return gamma; }, row.strict_link ? LinkModel::strict : LinkModel::paper);
      const auto full = full_cache_estimate(machine, load);
      if (!best || !full) return std::nullopt;
      return Rates{.full = full->tokens_per_second, .method = best->estimate.tokens_per_second};
    });
  });
}

namespace {

/// The number of remote instances at which the method gains most over the plain paths.
int64_t best_remote(RemotePrefixSetting setting, int64_t most) {
  int64_t best = 1;
  double gain = 0;
  for (setting.remote_gpus = 1; setting.remote_gpus <= most; ++setting.remote_gpus) {
    const double here = best_rates(setting).tokens_per_second / best_rates(setting, plain_paths).tokens_per_second;
    if (here > gain * (1 + 1e-9)) {
      gain = here;
      best = setting.remote_gpus;
    }
  }
  return best;
}

}  // namespace

std::vector<ComparedFigure> compare_remote_prefix(ComparisonReader& reader) {
  return reader.each_row([&](const nlohmann::json& json, const std::string& place) {
    const Row row = read_row(json, place);
    const Hardware hardware = reader.hardware(json, place);
    const ModelShape shape = reader.shape(json, place);
    const Efficiency& reached = hardware.efficiency;
    RemotePrefixSetting setting{.weight_bytes = weight_bytes(shape),
                                .memory_bytes = hardware.memory_bytes() * reached.usable_memory,
                                .memory_bandwidth = hardware.memory_bytes_per_second() * reached.memory,
                                .local_link_bandwidth = hardware.link("store_local").bytes_per_second(),
                                .remote_link_bandwidth = hardware.link("store_remote").bytes_per_second(),
                                .local_gpus = row.local,
                                .remote_gpus = row.remote,
                                .kept = row.kept,
                                .acceptance = acceptance(row),
                                .draft_length = row.draft_length,
                                .output_tokens = row.output};
    if (row.most_remote) {
      setting.cache_bytes = cache_bytes(shape, row.context.value_or(1));
      const auto best = static_cast<double>(best_remote(setting, *row.most_remote));
      return reader.compare(json, place, {{"best remote instances", best}});
    }
    return compare_row(reader, json, place, row, [&](int64_t context) -> std::optional<Rates> {
      setting.cache_bytes = cache_bytes(shape, context);
      if (setting.weight_bytes + setting.cache_bytes > setting.memory_bytes) return std::nullopt;
      return Rates{.full = best_rates(setting, plain_paths).tokens_per_second,
                   .method = best_rates(setting).tokens_per_second};
    });
  });
}

}  // namespace kvarena::cost_model
