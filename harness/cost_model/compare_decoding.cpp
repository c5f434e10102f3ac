#include <fmt/format.h>

#include "harness/core/error.h"
#include "harness/cost_model/comparison_parts.h"

namespace kvarena::cost_model {
namespace {

struct Row {
  std::string label;
  int64_t context = 0;
  int64_t output = 0;
  std::optional<int64_t> batch;  // to decode with; as many as fit unless given
  std::string baseline;          // label of the row that the speed-up is over

  void parameters(ParameterVisitor& p) {
    p("label", label).required();
    p("context", context).min(1).required();
    p("output", output).min(0).required();
    p("batch", batch).min(1);
    p("baseline", baseline);
  }
};

}  // namespace

std::vector<ComparedFigure> compare_decoding(ComparisonReader& reader) {
  std::map<std::string, double> rates;  // modelled, by label
  return reader.each_row([&](const nlohmann::json& json, const std::string& place) {
    Row row;
    const CacheScheme scheme = read_row_and_scheme(json, place, [&](ParameterVisitor& p) { row.parameters(p); });

    const Hardware hardware = reader.hardware(json, place);
    const ModelShape shape = reader.shape(json, place);
    const Workload workload{.context = row.context, .output = row.output};
    const std::optional<RunEstimate> run = estimate_run(hardware, shape, scheme, workload, row.batch);
    const double fitting = fitting_requests(hardware, shape, scheme, workload);
    if (!run) fail({.place = place, .found = "not even one request fits", .expected = "a larger machine"});
    if (static_cast<double>(run->batch) > fitting * (1 + kHeadlineTolerance)) {
      fail({.place = place + ".batch",
            .found = fmt::format("{} requests", run->batch),
            .expected = fmt::format("at most {:.1f}, which fit into memory", fitting),
            .action = "a state that cannot exist has no rate"});
    }
    rates[row.label] = run->tokens_per_second;
    const auto baseline = rates.find(row.baseline);
    if (!row.baseline.empty() && baseline == rates.end()) {
      fail({.place = place + ".baseline", .found = row.baseline, .expected = "the label of a row before this one"});
    }
    return reader.compare(
        json, place,
        {{"batch", fitting},
         {"step, ms", 1000 * static_cast<double>(run->batch) / run->tokens_per_second},
         {"tokens/s", run->tokens_per_second},
         {"tokens/s with prefill", run->end_to_end_tokens_per_second},
         {"speed-up",
          baseline == rates.end() ? std::nullopt : std::optional(run->tokens_per_second / baseline->second)}});
  });
}

}  // namespace kvarena::cost_model
