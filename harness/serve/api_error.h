#pragma once
// Refusals as clients of the OpenAI API read them.

#include <stdexcept>
#include <string>
#include <utility>

namespace kvarena::serve {

/// A request that gets no answer: its HTTP status and why.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& message, std::string param = "")
      : std::runtime_error(message), status_(status), param_(std::move(param)) {}

  [[nodiscard]] int status() const { return status_; }
  /// The field of the body that is wrong; empty where none is.
  [[nodiscard]] const std::string& param() const { return param_; }
  /// "invalid_request_error" and the like, by status.
  [[nodiscard]] const char* type() const;
  /// {"error": {"message", "type", "param", "code"}}.
  [[nodiscard]] std::string body() const;

 private:
  int status_;
  std::string param_;
};

/// Throws what a field of the body is refused with: 400.
[[noreturn]] void refuse(const std::string& field, const std::string& found, const std::string& expected);

}  // namespace kvarena::serve
