#include "tests/support/golden.h"

#include "harness/core/files.h"

namespace kvarena::testing {

nlohmann::json golden(const std::string& file) {
  return nlohmann::json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/" + file));
}

}  // namespace kvarena::testing
