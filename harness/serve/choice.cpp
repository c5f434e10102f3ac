#include "harness/serve/choice.h"

#include <algorithm>

namespace kvarena::serve {

Choice::Choice(const CompletionRequest& request, PlannedPrompt prompt, const ModelText& text)
    : request_(&request), prompt_(std::move(prompt)), text_(&text), answer_(text.tokenizer, request.stop) {
  if (request.echo && request.logprobs) forced_ = prompt_.tokens.size() - static_cast<size_t>(prompt_.context);
}

Piece Choice::take(const News& news) {
  Piece piece;
  if (!begun_ && request_->echo) piece.text = prompt_.text;
  if (!begun_ && request_->echo && request_->logprobs) {
    piece.tokens.push_back({.token = prompt_.tokens[scored_++], .score = {}});
  }
  begun_ = true;
  add_prompt(piece, news.prompt_scores);
  for (size_t i = 0; i < news.tokens.size(); ++i) add_token(piece, news, i);
  if (news.ending) {
    ending_ = news.ending;
    if (prompt_.max_tokens > 0) piece.text += answer_.finish();
  }
  return piece;
}

void Choice::add_prompt(Piece& piece, const std::vector<TokenScore>& scores) {
  for (const TokenScore& score : scores) piece.tokens.push_back({.token = prompt_.tokens[scored_++], .score = score});
}

void Choice::add_token(Piece& piece, const News& news, size_t place) {
  const int32_t token = news.tokens[place];
  if (forced_ > 0) {
    --forced_;
    ++scored_;
    piece.tokens.push_back({.token = token, .score = news.scores[place]});
    return;
  }
  if (prompt_.max_tokens == 0) return;
  ++answer_tokens_;
  piece.answer_ids.push_back(token);
  const bool ends = !request_->ignore_end && std::ranges::find(text_->stop_tokens, token) != text_->stop_tokens.end();
  if (ends) return;
  piece.text += answer_.push(token);
  if (request_->logprobs) piece.tokens.push_back({.token = token, .score = news.scores[place]});
}

const char* Choice::finish_reason() const {
  return ending_ && ending_->answer.finish == FinishReason::stop ? "stop" : "length";
}

}  // namespace kvarena::serve
