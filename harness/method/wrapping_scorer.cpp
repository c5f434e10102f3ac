#include "harness/method/wrapping_scorer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"

namespace kvarena {

std::unique_ptr<Scorer> Scorer::build(const nlohmann::json& spec, const std::string& place,
                                      std::vector<std::string>& problems) {
  const auto name = spec.value("name", "");
  const MethodEntry* entry = find_method(name);
  const std::unique_ptr<Method> method = entry == nullptr ? nullptr : entry->create();
  auto* dropping = dynamic_cast<DroppingMethod*>(method.get());
  if (dropping == nullptr || !dropping->scorer().budgeted()) {
    std::vector<std::string> names;
    for (const MethodEntry& other : method_registry()) names.push_back(other.info.name);
    problems.push_back(describe({.place = place + ".name",
                                 .found = fmt::format("\"{}\"", name),
                                 .expected = "a method that scores entries under a budget",
                                 .nearest = nearest_name(name, names),
                                 .action = "`kvarena methods` lists all"}));
    return nullptr;
  }
  std::unique_ptr<Scorer> scorer = dropping->take_scorer();
  const auto found = read_parameters(spec, place, [&](ParameterVisitor& p) { scorer->parameters(p); });
  problems.insert(problems.end(), found.begin(), found.end());
  if (found.empty()) scorer->check(place, problems);
  return scorer;
}

void WrappingScorer::parameters(ParameterVisitor& p) {
  p("scorer", scorer_).doc("the dropping method whose scores are used, its parameters without a budget");
}

}  // namespace kvarena
