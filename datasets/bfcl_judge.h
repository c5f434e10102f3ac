#pragma once
// BFCL's own package as the judge of conversations of several turns, in a Python process
// (python/kvarena/bfcl_judge.py): it carries calls out on the package's classes and judges what they come to.
//
//   judge: {"ready": true}, or {"error": TEXT} where its Python has no such package
//   program: {"task": TASK, "answers": [TEXT, ...]}
//   judge: {"count": TEXT}, any number of times; program: {"tokens": N}
//   judge: {"messages": [{"role": ..., "content": ...}, ...]}: all that was said in this context, the message behind
//          these answers last; or, when all is over, {"record": {...}}, which is scored
//   judge: {"error": TEXT} where it could not judge
//
//   TASK: {"entry": ROW, "ground_truth": [[CALL, ...], ...]} of multi_turn, whose record has "valid", "error" (a kind,
//         or empty) and "result", answers by turn; {"entries": [ROW, ...], "function": [...], "ground_truth":
//         {ID: [TEXT, ...]}} of a memory, whose record has "questions", each with "id", "valid" and "error", and
//         "result" by id; both with "room" and "answer_tokens" (BfclConversation)

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "datasets/records.h"
#include "datasets/workload.h"
#include "harness/core/python_judge.h"

namespace kvarena::datasets {

/// An import or an answer has KVARENA_PYTHON_SECONDS.
class BfclJudge {
 public:
  /// `script`: "bfcl_judge.py" of the program's own files. `encoder`: the folder of all-MiniLM-L6-v2, for memories of
  /// vectors; empty for others.
  explicit BfclJudge(const std::filesystem::path& script, const std::filesystem::path& encoder = {});

  /// Asks for what follows the answers to a task, a JSON text. `length` gives a message's tokens. Throws UserError as
  /// PythonJudge::ask() does, and where the package is absent.
  [[nodiscard]] nlohmann::json ask(const std::string& task, std::span<const std::string> answers,
                                   const std::function<int64_t(const std::string&)>& length);

 private:
  PythonJudge judge_;
};

/// Parts of a live sample that its replies share. Copies have one judge.
class BfclConversation {
 public:
  static constexpr int64_t kAnswerTokens = 512;

  /// `tokens`: the model's; null: a byte counts as one. `encoder`: as BfclJudge's.
  explicit BfclConversation(const TokenCounter* tokens, const std::filesystem::path& encoder = {});

  /// Makes the sample live. A conversation that needs more than `room` tokens behind its first answer has failed; a
  /// later context's may have as many, of which what its prompt is longer than the first one's takes its share.
  void begin(Sample& sample, Row task, int64_t room) const;

 private:
  std::shared_ptr<BfclJudge> judge_;
  const TokenCounter* tokens_;
};

}  // namespace kvarena::datasets
