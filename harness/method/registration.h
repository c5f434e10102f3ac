#pragma once
// Inside the method folder: the lists that registration lines and plugins fill.

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "harness/method/budget_rule.h"
#include "harness/method/registry.h"

namespace kvarena::detail {

/// Methods in the order of registration, before they are sorted. Throws InternalError once the registry has been looked
/// at.
[[nodiscard]] std::span<const MethodEntry> registered_methods();

/// Throws UserError that names the plugin when a method of `among` has this name.
void require_free(const std::filesystem::path& plugin, const std::string& name, std::span<const MethodEntry> among);

/// A budget rule as configs name it.
struct BudgetRuleEntry {
  std::string name;
  std::string summary;
  std::function<std::unique_ptr<BudgetRule>()> create;
};

/// Adds a rule beside the built-in ones. Throws UserError that names the plugin when a rule has this name.
void add_budget_rule(const std::filesystem::path& plugin, BudgetRuleEntry rule);

}  // namespace kvarena::detail
