#pragma once
// Methods of an experiment by the settings that they were asked for with.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reports/experiment_data.h"

namespace kvarena::reports {

/// One method of the experiment as it was asked for.
struct Asked {
  std::string label;
  nlohmann::json settings;
};

/// The experiment's methods by the name they are registered under, in their order.
[[nodiscard]] std::map<std::string, std::vector<Asked>> methods_by_name(const ExperimentData& data);

/// Methods that draft and are the same in every setting but their draft length.
struct DraftingMethods {
  std::string label;                       // what their labels share: "KIVI, x = 5" and "KIVI, x = 10" are "KIVI"
  nlohmann::json settings;                 // all but the draft length
  std::map<int64_t, std::string> lengths;  // label by draft length
};
[[nodiscard]] std::vector<DraftingMethods> drafting_methods(const ExperimentData& data);

}  // namespace kvarena::reports
