#pragma once
// A judge that compiles programs of answers and runs them on stored tests, in a Python process
// (python/kvarena/program_judge.py). Nothing runs unless KVARENA_RUN_CODE is 1.
//
//   judge: {"ready": true}, or {"error": TEXT} where it cannot compile, or set a program apart from the machine
//   program: {"answer": TEXT, "tests": [[[LINE, ...], [LINE, ...]], ...]}: input and output of each
//   judge: {"extracted": BOOL, "valid": BOOL, "error": KIND, "detail": TEXT}

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "harness/core/python_judge.h"

namespace kvarena::datasets {

class ProgramJudge {
 public:
  /// `script`: "program_judge.py" of the program's own files.
  explicit ProgramJudge(const std::filesystem::path& script);

  /// Judges the program in an answer by tests, a JSON text. Throws UserError where programs may not run or cannot.
  [[nodiscard]] nlohmann::json ask(const std::string& answer, const std::string& tests);

 private:
  PythonJudge judge_;
};

}  // namespace kvarena::datasets
