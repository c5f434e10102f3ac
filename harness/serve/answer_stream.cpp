#include "harness/serve/answer_stream.h"

#include <algorithm>
#include <iterator>

namespace kvarena::serve {

void AnswerStream::push(std::vector<int32_t> tokens, std::vector<TokenScore> scores) {
  {
    const std::lock_guard lock(mutex_);
    news_.tokens.insert(news_.tokens.end(), tokens.begin(), tokens.end());
    std::ranges::move(scores, std::back_inserter(news_.scores));
  }
  came_.notify_one();
}

void AnswerStream::push_prompt_scores(std::vector<TokenScore> scores) {
  const std::lock_guard lock(mutex_);
  std::ranges::move(scores, std::back_inserter(news_.prompt_scores));
}

void AnswerStream::end(Ending ending) {
  {
    const std::lock_guard lock(mutex_);
    news_.ending = std::move(ending);
  }
  came_.notify_one();
}

News AnswerStream::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, most, [&] { return !news_.tokens.empty() || news_.ending; });
  News news = std::move(news_);
  news_ = {};
  return news;
}

}  // namespace kvarena::serve
