#include "harness/core/nested.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"

namespace kvarena {

void NestedComponent::build(const nlohmann::json& settings, const std::string& place,
                            std::vector<std::string>& problems) {
  make(settings, place, problems);
  settings_ = settings.dump();
  name_ = settings.value("name", "");
}

void NestedComponent::build(const std::string& settings) {
  std::vector<std::string> problems;
  build(nlohmann::json::parse(settings), settings, problems);
  if (!problems.empty()) throw UserError(fmt::format("{}", fmt::join(problems, "\n")));
}

}  // namespace kvarena
