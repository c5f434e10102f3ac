#include <algorithm>
#include <nlohmann/json.hpp>

#include "metrics/protocol/needle_protocol.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

using Ids = std::vector<int64_t>;

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const auto ids = [&](const char* name) { return row.at(name).get<Ids>(); };
  const auto inserted =
      insert_needle(ids("context_ids"), ids("needle_ids"), ids("period_ids"), row.at("context_length").get<int64_t>(),
                    row.at("final_context_length_buffer").get<int64_t>(), row.at("depth_percent").get<double>());
  return {{"expected", inserted.ids}};
}

}  // namespace

NeedleInsertion insert_needle(std::span<const int64_t> context, std::span<const int64_t> needle,
                              std::span<const int64_t> period_ids, int64_t context_length, int64_t buffer,
                              double depth_percent) {
  const int64_t room = std::max<int64_t>(context_length - buffer - static_cast<int64_t>(needle.size()), 0);
  const auto kept = std::min(static_cast<int64_t>(context.size()), room);
  NeedleInsertion result{Ids(context.begin(), context.begin() + kept), kept};
  if (depth_percent != 100) {
    const auto ends_sentence = [&](int64_t id) {
      return std::find(period_ids.begin(), period_ids.end(), id) != period_ids.end();
    };
    result.position = static_cast<int64_t>(static_cast<double>(kept) * (depth_percent / 100));
    while (result.position > 0 && !ends_sentence(result.ids[static_cast<size_t>(result.position - 1)]))
      --result.position;
  }
  result.ids.insert(result.ids.begin() + result.position, needle.begin(), needle.end());
  return result;
}

KVARENA_METRIC(
    {.id = "needle_insertion",
     .title = "Needle insertion",
     .kind = MetricKind::protocol,
     .unit = "tokens",
     .table_scale = 1,
     .summary = "Where the needle goes: at a depth, moved back to the end of a sentence. With a wrong full-stop id "
                "every needle lands at the start.",
     .source = "gkamradt/LLMTest_NeedleInAHaystack @7b90d285 insert_needle",
     .vectors = {{"niah_insert", recompute}}});

}  // namespace kvarena::metrics
