#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/protocol/truncation.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

TruncationRule rule_named(const std::string& name) {
  if (name == "longbench_v1") return TruncationRule::longbench_v1;
  if (name == "longbench_v2") return TruncationRule::longbench_v2;
  fail({.place = "middle_truncation: rule",
        .found = fmt::format("\"{}\"", name),
        .expected = "longbench_v1 or longbench_v2"});
}

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const auto ids = row.at("ids").get<std::vector<int64_t>>();
  const auto cut =
      truncate_middle(ids, row.at("max_length").get<int64_t>(), rule_named(row.at("rule").get<std::string>()));
  return {{"expected_head", std::vector<int64_t>(cut.head.begin(), cut.head.end())},
          {"expected_tail", std::vector<int64_t>(cut.tail.begin(), cut.tail.end())}};
}

}  // namespace

MiddleTruncation truncate_middle(std::span<const int64_t> ids, int64_t max_length, TruncationRule rule) {
  KVARENA_ASSERT(max_length >= 2, fmt::format("max_length={}", max_length));
  const auto limit = static_cast<size_t>(max_length);
  if (ids.size() <= limit) return {ids, {}};
  const size_t head = limit / 2;
  return {ids.first(head), ids.last(rule == TruncationRule::longbench_v1 ? head : limit - head)};
}

KVARENA_METRIC({.id = "middle_truncation",
                .title = "Middle truncation",
                .kind = MetricKind::protocol,
                .unit = "tokens",
                .table_scale = 1,
                .summary = "The first and the last half of a prompt that has more than max_length tokens.",
                .source = "THUDM/LongBench @2e00731f LongBench/pred.py (v1), pred.py (v2)",
                .vectors = {{"middle_truncation", recompute}}});

}  // namespace kvarena::metrics
