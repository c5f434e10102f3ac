#pragma once
// Fixtures of tests/golden.

#include <nlohmann/json.hpp>
#include <string>

namespace kvarena::testing {

/// Reads tests/golden/FILE.
nlohmann::json golden(const std::string& file);

}  // namespace kvarena::testing
