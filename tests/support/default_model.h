#pragma once
// Model and data that scripts/setup brings. Tests that need them skip where they are absent.

#include <filesystem>

#include "harness/core/home.h"

namespace kvarena::testing {

inline std::filesystem::path installed_models() { return kvarena_home() / "models"; }

/// Brought by scripts/setup --gemma.
inline std::filesystem::path gemma3_file() { return installed_models() / "gemma-3-270m" / "gemma-3-270m-q4_k_m.gguf"; }

inline std::filesystem::path default_model() { return installed_models() / kDefaultModel; }

}  // namespace kvarena::testing
