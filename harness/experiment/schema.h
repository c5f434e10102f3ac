#pragma once
// The JSON Schema of experiment configs, made from the same descriptions that validation uses.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/core/parameters.h"

namespace kvarena::experiment {

/// A registered method, workload or metric as the schema shows it.
struct ComponentInfo {
  std::string name;
  std::string doc;
  std::vector<ParameterInfo> parameters;
};

struct Components {
  std::vector<ComponentInfo> methods;
  std::vector<ComponentInfo> workloads;
  std::vector<ComponentInfo> metrics;
};

/// configs/schema.json: draft 2020-12, keys sorted, so that equal registries give equal text.
[[nodiscard]] nlohmann::json config_schema(const Components& components);

}  // namespace kvarena::experiment
