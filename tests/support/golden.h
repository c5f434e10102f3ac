#pragma once
// Fixtures of tests/golden.

#include <nlohmann/json.hpp>
#include <string>

#include "harness/core/files.h"

namespace kvarena::testing {

/// Reads tests/golden/FILE.
inline nlohmann::json golden(const std::string& file) {
  return nlohmann::json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/" + file));
}

}  // namespace kvarena::testing
