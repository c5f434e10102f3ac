#include "harness/experiment/method_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/json_text.h"
#include "harness/experiment/config_parts.h"
#include "harness/results/changed_label.h"

namespace kvarena::experiment {
namespace {

using nlohmann::json;

/// Whether it is a number of requests, or an object of such `depth` keys deep.
bool counts_requests(const json& value, int64_t depth) {
  if (value.is_number_integer()) return value.get<double>() >= 1;
  return depth > 0 && value.is_object() && !value.empty() &&
         std::ranges::all_of(value, [&](const json& inner) { return counts_requests(inner, depth - 1); });
}

std::vector<std::string> keys_of(const json& object) {
  std::vector<std::string> keys;
  if (object.is_object()) {
    for (const auto& [key, value] : object.items()) keys.push_back(key);
  }
  return keys;
}

/// A warning for each name that is no label of the config, however its settings were changed.
template <typename Entry>
void warn_of(const std::vector<std::string>& names, const char* what, const std::vector<Entry>& entries,
             const std::string& place, std::vector<std::string>& warnings) {
  std::vector<std::string> labels;
  for (const Entry& entry : entries) labels.push_back(entry.label);
  for (const std::string& name : names) {
    if (results::label_among(labels, name)) continue;
    warnings.push_back(describe({.place = place,
                                 .found = fmt::format("{} \"{}\", which this experiment does not have", what, name),
                                 .nearest = nearest_name(name, labels)}));
  }
}

}  // namespace

std::string take_batch(json& entry, const std::string& key, Problems& problems) {
  constexpr int64_t kDepth = 2;  // by workload, then by model
  const json batch = entry.value("batch", json());
  entry.erase("batch");
  if (batch.is_null()) return "";
  if (counts_requests(batch, kDepth)) return batch.dump();
  problems.add(key + ".batch", brief(batch), "requests, at least 1; or an object of such by workload, then by model");
  return "";
}

int64_t timed_batch(const ExperimentConfig& config, const ComponentEntry& method, const std::string& workload,
                    const std::string& model) {
  json own = method.batch_json.empty() ? json() : json::parse(method.batch_json);
  for (const std::string& label : {workload, model}) {
    if (own.is_object()) own = json(own.value(label, json()));
  }
  return own.is_number() ? own.get<int64_t>() : config.timing.value().batch;
}

std::vector<std::string> unmatched_labels(const ExperimentConfig& config, const std::string& place) {
  const bool other_models = json::parse(config.overrides_json).contains("model");
  std::vector<std::string> warnings;
  for (const ComponentEntry& method : config.methods) {
    if (!other_models)
      warn_of(method.models, "model", config.models, fmt::format("{}: models of {}", place, method.label), warnings);
    if (method.batch_json.empty()) continue;
    const std::string at = fmt::format("{}: batch of {}", place, method.label);
    const json batch = json::parse(method.batch_json);
    warn_of(keys_of(batch), "workload", config.workloads, at, warnings);
    for (const json& inner : batch) {
      if (!other_models) warn_of(keys_of(inner), "model", config.models, at, warnings);
    }
  }
  return warnings;
}

}  // namespace kvarena::experiment
