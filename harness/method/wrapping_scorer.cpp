#include "harness/method/wrapping_scorer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"

namespace kvarena {
namespace {

using nlohmann::json;

/// Null when there are problems.
std::unique_ptr<Scorer> build(const std::string& text, const std::string& place, std::vector<std::string>& problems) {
  const json spec = json::parse(text);
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

}  // namespace

std::vector<std::string> check_scorer(const std::string& json, const std::string& place) {
  std::vector<std::string> problems;
  (void)build(json, place, problems);
  return problems;
}

std::unique_ptr<Scorer> make_scorer(const std::string& json, const std::string& place) {
  std::vector<std::string> problems;
  auto scorer = build(json, place, problems);
  if (!problems.empty()) throw UserError(fmt::format("{}", fmt::join(problems, "\n")));
  return scorer;
}

void WrappingScorer::parameters(ParameterVisitor& p) {
  p("scorer", scorer_).doc("the dropping method whose scores are used, its parameters without a budget");
}

void WrappingScorer::check(const std::string& place, std::vector<std::string>& problems) const {
  const auto found = check_scorer(scorer_.json, place + ".scorer");
  problems.insert(problems.end(), found.begin(), found.end());
}

const Scorer& WrappingScorer::base() const {
  if (base_json_ != scorer_.json) {
    base_ = make_scorer(scorer_.json, "scorer");
    base_json_ = scorer_.json;
  }
  return *base_;
}

}  // namespace kvarena
