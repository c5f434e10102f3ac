#include "harness/core/run_code.h"

#include <cstdlib>
#include <string_view>

#include "harness/core/error.h"

namespace kvarena {

void require_code_allowed(const std::string& place) {
  const char* value = std::getenv("KVARENA_RUN_CODE");
  if (value != nullptr && std::string_view(value) == "1") return;
  fail({.place = place,
        .found = "a program that a model wrote, to be run beside its tests",
        .expected = "KVARENA_RUN_CODE=1, which allows it",
        .action = "set it on a machine where such programs may run; bounds are no sandbox"});
}

}  // namespace kvarena
