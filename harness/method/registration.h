#pragma once
// Inside the method folder: the list that registration lines fill, before it is sorted.

#include <filesystem>
#include <span>
#include <string>

#include "harness/method/registry.h"

namespace kvarena::detail {

/// The methods in the order of registration. Throws InternalError once the registry has been looked at.
[[nodiscard]] std::span<const MethodEntry> registered_methods();

/// Throws UserError that names the plugin when a method of `among` has this name.
void require_free(const std::filesystem::path& plugin, const std::string& name, std::span<const MethodEntry> among);

}  // namespace kvarena::detail
