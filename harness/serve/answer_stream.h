#pragma once
// An answer on its way from the engine's thread to the one that writes it.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "harness/engine/serving/serving_engine.h"
#include "harness/serve/token_scores.h"

namespace kvarena::serve {

/// How a request ended.
struct Ending {
  serving::Outcome outcome = serving::Outcome::answered;
  std::string reason;     // of all but answered
  bool too_late = false;  // cancelled because its time was over
  bool closing = false;   // cancelled because the server stops
  ServedAnswer answer;    // where answered
};

/// News since the last look.
struct News {
  std::vector<int32_t> tokens;            // forced ones included
  std::vector<TokenScore> scores;         // of these, where they were asked for
  std::vector<TokenScore> prompt_scores;  // of prompt tokens but the first
  std::optional<Ending> ending;
};

class AnswerStream {
 public:
  /// The engine's side.
  void push(std::vector<int32_t> tokens, std::vector<TokenScore> scores);
  void push_prompt_scores(std::vector<TokenScore> scores);
  void end(Ending ending);
  [[nodiscard]] bool cancelled() const { return cancelled_; }

  /// The reader's side: what came, waiting for it at most so long. Nothing comes behind an ending.
  [[nodiscard]] News wait(std::chrono::milliseconds most);
  /// Nobody reads any more: the engine drops the request.
  void cancel() { cancelled_ = true; }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  News news_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace kvarena::serve
