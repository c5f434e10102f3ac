// kvarena schema: the JSON Schema of configs, made from what the registered components declare.

#include "harness/experiment/schema.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "datasets/workload.h"
#include "harness/cli/commands.h"
#include "harness/core/page.h"
#include "harness/evaluate/server_entry.h"
#include "harness/method/registry.h"
#include "metrics/registry.h"

namespace kvarena::cli {
namespace {

struct Options {
  void declare(OptionSet& /*o*/) {}
};

experiment::Components registered_components() {
  experiment::Components all;
  for (const MethodEntry& entry : method_registry()) {
    all.methods.push_back({entry.info.name, entry.info.summary, entry.parameters()});
  }
  all.methods.push_back({evaluate::kServerEntry, "A model's server with the settings that it was started with.",
                         evaluate::server_parameters()});
  for (const datasets::WorkloadEntry& entry : datasets::workloads()) {
    all.workloads.push_back({entry.info.name, entry.info.title, datasets::workload_parameters(entry)});
  }
  for (const metrics::MetricEntry* entry : metrics::all_metrics()) all.metrics.push_back({entry->id, entry->title, {}});
  return all;
}

int run(const Options& /*options*/) {
  nlohmann::json schema = experiment::config_schema(registered_components());
  nlohmann::json& server = schema["$defs"][fmt::format("method.{}", evaluate::kServerEntry)]["properties"];
  server["settings"] = {{"type", "object"},
                        {"description", "options of the server by name: whoever starts it gives them to it"}};
  server["start"] = {{"type", "array"},
                     {"items", {{"type", "string"}}},
                     {"minItems", 1},
                     {"description", "words of a command by which the run starts the server (docs/endpoints.md)"}};
  print(fmt::format("{}\n", schema.dump(2)));
  return 0;
}

}  // namespace

Command schema_command() {
  return make_command<Options>({.name = "schema",
                                .summary = "the JSON Schema of configs, for editors and checkers",
                                .examples = {{"kvarena schema > schema.json", "what a config may hold"}}},
                               run);
}

}  // namespace kvarena::cli
