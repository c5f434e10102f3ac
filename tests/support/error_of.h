#pragma once
// Messages of refusals.

#include <string>
#include <utility>

#include "harness/core/error.h"

namespace kvarena::testing {

/// Returns the message of the UserError that `call` throws; empty when it throws none.
template <typename Call>
std::string error_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

}  // namespace kvarena::testing
