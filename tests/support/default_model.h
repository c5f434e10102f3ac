#pragma once
// Model and data that scripts/setup brings. Tests that need them skip where they are absent.

#include <filesystem>

#include "harness/core/home.h"

namespace kvarena::testing {

inline std::filesystem::path installed_models() { return kvarena_home() / "models"; }

inline std::filesystem::path default_model() { return installed_models() / kDefaultModel; }

}  // namespace kvarena::testing
