#pragma once
// An error of the user's with lines that tell more than its message: the traceback of a method in Python.

#include <string>
#include <utility>

#include "harness/core/error.h"

namespace kvarena {

class LoggedError : public UserError {
 public:
  LoggedError(const std::string& message, std::string log) : UserError(message), log_(std::move(log)) {}
  [[nodiscard]] const std::string& log() const { return log_; }

 private:
  std::string log_;
};

}  // namespace kvarena
