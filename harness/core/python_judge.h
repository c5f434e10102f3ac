#pragma once
// A Python script that comes with the program and answers questions, each a line of JSON.

#include <chrono>
#include <functional>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/core/python_process.h"

namespace kvarena {

/// Starts the script when it is first asked, and again after it died. Threads take turns.
class PythonJudge {
 public:
  /// Texts of errors: what asks, and what the machine needs where the script's first line is not {"ready": ...}.
  struct Texts {
    std::string place;
    std::string needs;
    std::string action;
  };
  /// Gives the line that goes back where `said` is a question about the question; nothing where it is the answer.
  using Aside = std::function<std::optional<std::string>(const nlohmann::json& said)>;
  using Patience = std::optional<std::chrono::seconds>;
  /// An answer's form, in words and as a test of it.
  struct Answer {
    std::string expected;
    std::function<bool(const nlohmann::json& said)> given;
  };

  /// `command`: the script, and arguments before the socket's descriptor.
  PythonJudge(Texts texts, std::vector<std::string> command) : texts_(std::move(texts)), command_(std::move(command)) {}

  /// Returns the answer to a question, a JSON text. A script that has none may say why as "error" of an object.
  /// `patience`: for an answer; the script bounds itself where there is none, its start included. Throws UserError
  /// where the script cannot start, ends, takes too long, or gives no such answer.
  [[nodiscard]] nlohmann::json ask(std::string_view question, const Answer& answer, const Patience& patience,
                                   const Aside& aside = {});

 private:
  void start(const Patience& patience);
  [[nodiscard]] nlohmann::json receive(const Patience& patience);
  [[noreturn]] void refuse(const nlohmann::json& said, const std::string& expected, const std::string& action);

  Texts texts_;
  std::vector<std::string> command_;
  PythonProcess process_{texts_.place};
  std::mutex one_at_a_time_;
};

}  // namespace kvarena
