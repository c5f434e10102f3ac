#pragma once
// BFCL's own package as the judge of conversations of several turns, in a Python process
// (python/kvarena/bfcl_judge.py): it carries calls out on the package's classes and compares their states at the end.
//
//   judge: {"ready": true}, or {"error": TEXT, "absent": true} where its Python has no such package
//   program: {"task": {"entry": ROW, "ground_truth": [[CALL, ...], ...]}, "answers": [TEXT, ...]}
//   judge: {"messages": [{"role": ..., "content": ...}, ...]}: all that was said, the message behind these answers
//   last;
//          beside it, when the conversation is over, "valid", "error" (a kind, or empty) and "result", answers by turn
//   judge: {"error": TEXT} where it could not judge

#include <filesystem>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "harness/core/python_process.h"

namespace kvarena::datasets {

/// Starts the process when it is first asked, and again after it died. An import or an answer has
/// KVARENA_PYTHON_SECONDS.
class BfclJudge {
 public:
  /// `script`: "bfcl_judge.py" of the program's own files.
  explicit BfclJudge(std::filesystem::path script);

  /// Asks for what follows the answers to a task, a JSON text. Throws UserError where the package is absent, the
  /// process ends, takes too long or cannot judge; the next question starts it anew.
  [[nodiscard]] nlohmann::json ask(const std::string& task, std::span<const std::string> answers);

 private:
  void start();
  [[nodiscard]] nlohmann::json receive();

  std::filesystem::path script_;
  PythonProcess process_;
  std::mutex one_at_a_time_;
};

}  // namespace kvarena::datasets
