#pragma once
// Programs in Jinja, as the chat templates of checkpoints are, run as transformers runs them.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/model/jinja/value.h"

namespace kvarena::jinja {

struct Statement;

/// Immutable, and shared by copies.
class Program {
 public:
  /// Throws UserError naming the line of what is not Jinja, or is beyond what chat templates use: inheritance, imports.
  explicit Program(std::string_view text);

  /// The text that the program writes, given the values of names. Throws UserError with the line of what cannot be
  /// done, or with the message of raise_exception.
  [[nodiscard]] std::string render(const Names& names) const;

 private:
  std::shared_ptr<const std::vector<std::unique_ptr<const Statement>>> statements_;
};

}  // namespace kvarena::jinja
