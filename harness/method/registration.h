#pragma once
// Inside the method folder: the list that registration lines fill, before it is sorted.

#include <span>

#include "harness/method/registry.h"

namespace kvarena::detail {

/// The methods in the order of registration. Throws InternalError once the registry has been looked at.
[[nodiscard]] std::span<const MethodEntry> registered_methods();

}  // namespace kvarena::detail
