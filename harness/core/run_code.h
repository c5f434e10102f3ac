#pragma once
// Consent to run programs that a model wrote.

#include <string>

namespace kvarena {

/// Throws UserError unless KVARENA_RUN_CODE is 1 in the environment. `place` says what would run them.
void require_code_allowed(const std::string& place);

}  // namespace kvarena
