#pragma once
// One prompt's answer as the client sees it: text and scored tokens, piece by piece.

#include <optional>
#include <string>
#include <vector>

#include "harness/serve/answer_stream.h"
#include "harness/serve/answer_text.h"
#include "harness/serve/request_plan.h"

namespace kvarena::serve {

struct ScoredToken {
  int32_t token = 0;
  std::optional<TokenScore> score;  // the first token of a prompt has none
};

struct Piece {
  std::string text;
  std::vector<ScoredToken> tokens;  // where scores were asked for
  std::vector<int32_t> answer_ids;  // of the answer's own tokens, the one that ends it included
};

class Choice {
 public:
  /// The request and the model's text must outlive it.
  Choice(const CompletionRequest& request, PlannedPrompt prompt, const ModelText& text);

  /// The next piece of text out of what came.
  [[nodiscard]] Piece take(const News& news);
  /// Set once the answer is over.
  [[nodiscard]] const std::optional<Ending>& ending() const { return ending_; }
  /// "stop" or "length".
  [[nodiscard]] const char* finish_reason() const;
  [[nodiscard]] int64_t prompt_tokens() const { return std::ssize(prompt_.tokens); }
  [[nodiscard]] int64_t answer_tokens() const { return answer_tokens_; }

 private:
  void add_prompt(Piece& piece, const std::vector<TokenScore>& scores);
  void add_token(Piece& piece, const News& news, size_t place);

  const CompletionRequest* request_;
  PlannedPrompt prompt_;
  const ModelText* text_;
  AnswerText answer_;
  std::optional<Ending> ending_;
  bool begun_ = false;
  size_t scored_ = 0;  // tokens of the prompt that were shown with scores
  size_t forced_ = 0;  // tokens that will come and belong to the prompt
  int64_t answer_tokens_ = 0;
};

}  // namespace kvarena::serve
