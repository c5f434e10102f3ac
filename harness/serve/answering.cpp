#include "harness/serve/answering.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "harness/core/json_text.h"
#include "harness/serve/api_error.h"

namespace kvarena::serve {
namespace {

using serving::Outcome;

constexpr std::chrono::milliseconds kLook(20);  // between looks at whether the client is there

/// Throws where a request ended without an answer.
void require_answer(const Ending& ending) {
  if (ending.outcome == Outcome::answered) return;
  if (ending.outcome == Outcome::refused) throw ApiError(400, ending.reason);
  if (ending.closing) throw ApiError(503, "the server stopped before the answer was complete");
  if (ending.too_late) throw ApiError(504, fmt::format("no complete answer in time: {}", ending.reason));
  throw ApiError(500, ending.reason);
}

void append(Piece& whole, Piece piece) {
  whole.text += piece.text;
  std::ranges::move(piece.tokens, std::back_inserter(whole.tokens));
  std::ranges::move(piece.answer_ids, std::back_inserter(whole.answer_ids));
}

std::string event(const std::string& data) { return fmt::format("data: {}\n\n", data); }

}  // namespace

Answering::Answering(CompletionRequest request, const ServedModel& model, const ModelText& text,
                     const RequestLimits& limits, LiveEngine& engine, ClientConnection client, AnswerHead head)
    : request_(std::move(request)), text_(&text), client_(client), head_(std::move(head)) {
  try {
    for (PlannedPrompt& prompt : plan_prompts(request_, model, text, limits)) {
      streams_.push_back(engine.submit(live_request(request_, prompt, model, text)));
      choices_.emplace_back(request_, std::move(prompt), text);
    }
  } catch (...) {
    for (const auto& stream : streams_) stream->cancel();
    throw;
  }
}

Answering::~Answering() {
  for (const auto& stream : streams_) stream->cancel();
}

std::string Answering::whole() {
  std::vector<Piece> pieces(choices_.size());
  for (size_t i = 0; i < choices_.size(); ++i) {
    while (!choices_[i].ending()) {
      append(pieces[i], choices_[i].take(streams_[i]->wait(kLook)));
      if (!choices_[i].ending() && client_.gone()) return "";
    }
    require_answer(*choices_[i].ending());
  }
  return json_text(answer_json(head_, choices_, pieces, text_->tokenizer));
}

bool Answering::begin_stream() {
  while (first_.tokens.empty() && !first_.ending) {
    News news = streams_.front()->wait(kLook);
    std::ranges::move(news.prompt_scores, std::back_inserter(first_.prompt_scores));
    first_.tokens = std::move(news.tokens);
    first_.scores = std::move(news.scores);
    first_.ending = std::move(news.ending);
    if (first_.tokens.empty() && !first_.ending && client_.gone()) return false;
  }
  if (first_.ending) require_answer(*first_.ending);
  return true;
}

std::string Answering::next_events() {
  if (!begun_) return events_of(std::exchange(first_, {}));
  const News news = streams_.front()->wait(kLook);
  return news.tokens.empty() && !news.ending ? "" : events_of(news);
}

std::string Answering::events_of(const News& news) {
  Choice& choice = choices_.front();
  append(held_, choice.take(news));
  begun_ = true;
  std::string text;
  try {
    if (news.ending) require_answer(*news.ending);
    if (head_.tools && !news.ending) return "";
    const bool first = !std::exchange(told_, true);
    text = event(json_text(chunk_json(head_, choice, std::exchange(held_, {}), first, text_->tokenizer)));
    if (!news.ending) return text;
    if (request_.stream_usage) text += event(json_text(usage_chunk_json(head_, choice)));
    text += event("[DONE]");
  } catch (const ApiError& error) {
    text = event(error.body());
  }
  stream_over_ = true;
  return text;
}

}  // namespace kvarena::serve
