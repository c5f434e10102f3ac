// kvarena metrics [METRIC]: what is computed from answers, logits and times.

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/registry_text.h"
#include "harness/core/page.h"
#include "metrics/registry.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

constexpr std::array kKinds{metrics::MetricKind::text, metrics::MetricKind::functional,
                            metrics::MetricKind::distribution, metrics::MetricKind::latency,
                            metrics::MetricKind::protocol};

struct Options {
  std::optional<std::string> name;
  std::optional<std::string> family;
  bool json = false;

  void declare(OptionSet& o) {
    std::vector<std::string> kinds;
    for (const metrics::MetricKind kind : kKinds) kinds.emplace_back(name_of(kind));
    o.positional("METRIC", name).help("the metric to describe; without it all are listed");
    o.option("family", "FAMILY", family).choices(kinds).help("list one family");
    o.flag("json", json).help("write JSON");
  }
};

json entry_json(const metrics::MetricEntry& entry) {
  return {{"name", entry.id},
          {"title", entry.title},
          {"family", name_of(entry.kind)},
          {"unit", entry.unit},
          {"table_scale", entry.table_scale},
          {"better", name_of(entry.better)},
          {"version", entry.version},
          {"summary", entry.summary},
          {"source", entry.source},
          {"scores_pairs", entry.score != nullptr}};
}

void describe_metric(const metrics::MetricEntry& entry) {
  print(Page().bold(entry.title).text(fmt::format(" ({})\n", entry.id)).wrapped(entry.summary).text("\n\n"));
  const std::string scale = entry.table_scale == 1 ? "" : fmt::format(", printed times {}", entry.table_scale);
  print(Page().columns(fact_rows(
      {{"family", std::string(name_of(entry.kind))},
       {"unit", entry.unit + scale},
       {"better", std::string(name_of(entry.better))},
       {"version", fmt::format("{}", entry.version)},
       {"source", entry.source},
       {"kvarena score", entry.score == nullptr ? "no: it does not compare a prediction with references" : "yes"}})));
}

void list_metrics(const std::vector<const metrics::MetricEntry*>& entries) {
  bool first = true;
  for (const metrics::MetricKind kind : kKinds) {
    std::vector<std::vector<std::string>> rows;
    for (const metrics::MetricEntry* entry : entries) {
      if (entry->kind == kind) rows.push_back({entry->id, entry->title});
    }
    if (rows.empty()) continue;
    print(Page().text(first ? "" : "\n").bold(name_of(kind)).text("\n").columns(std::move(rows)));
    first = false;
  }
}

int run(const Options& options) {
  if (options.name) {
    const metrics::MetricEntry& entry = metrics::find_metric(*options.name);
    if (options.json) {
      print(fmt::format("{}\n", entry_json(entry).dump(2)));
    } else {
      describe_metric(entry);
    }
    return 0;
  }
  std::vector<const metrics::MetricEntry*> entries;
  for (const metrics::MetricEntry* entry : metrics::all_metrics()) {
    if (!options.family || *options.family == name_of(entry->kind)) entries.push_back(entry);
  }
  if (options.json) {
    json list = json::array();
    for (const metrics::MetricEntry* entry : entries) list.push_back(entry_json(*entry));
    print(fmt::format("{}\n", list.dump(2)));
  } else {
    list_metrics(entries);
  }
  return 0;
}

}  // namespace

Command metrics_command() {
  return make_command<Options>({.name = "metrics",
                                .summary = "list the metrics, or describe one with its source",
                                .examples = {{"kvarena metrics", "all, by family"},
                                             {"kvarena metrics qa_f1", "what it computes and after whom"}}},
                               run);
}

}  // namespace kvarena::cli
