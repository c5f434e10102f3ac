#include "datasets/conversation.h"

#include <fmt/format.h>

#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

constexpr const char* kBlanks = " \n\t";

/// Returns the text that a sample asks behind the context and earlier turns.
std::string asked_by(const Sample& sample) {
  if (!sample.follow_up.empty()) return sample.follow_up;
  return sample.messages.back().content.substr(sample.question.byte);
}

/// The turn's answer behind `before`: after a blank, unless there is one.
std::string answer_behind(const std::string& before, const std::string& answer) {
  const bool blank = before.empty() || std::string_view(kBlanks).find(before.back()) != std::string_view::npos;
  return blank ? answer : " " + answer;
}

void require_one_message(const Sample& sample) {
  if (sample.question.message + 1 == sample.messages.size()) return;
  fail({.place = fmt::format("sample {}", sample.id),
        .found = fmt::format("{} messages from the one where its question starts",
                             sample.messages.size() - sample.question.message),
        .expected = "one, as the others of a conversation are its turns"});
}

/// A plain prompt goes on: the answer, then the next question.
void extend_text(Sample& to, const std::string& answer, const std::string& question) {
  std::string& text = to.messages.back().content;
  text += to.answer_prefix;
  to.turns.push_back({0, text.size()});
  text += answer_behind(text, answer);
  to.turns.push_back({0, text.size()});
  text += question;
}

/// A chat goes on: the assistant's message, which begins with the answer prefix, then the user's next one.
void extend_chat(Sample& to, const std::string& answer, const std::string& question) {
  const size_t place = to.messages.size();
  const std::string content = to.answer_prefix + answer_behind(to.answer_prefix, answer);
  to.turns.push_back({place, to.answer_prefix.size()});
  to.turns.push_back({place, content.size()});
  to.messages.push_back({"assistant", content});
  to.messages.push_back({"user", question});
}

}  // namespace

void add_turn(Sample& sample, const std::string& answer, const std::string& message, std::vector<ToolResult> results) {
  sample.chat_template ? extend_chat(sample, answer, message) : extend_text(sample, answer, message);
  const size_t before = sample.messages.back().content.size() - message.size();
  for (ToolResult& result : results) {
    result.message = sample.messages.size() - 1;
    result.begin += before;
    result.end += before;
    sample.results.push_back(std::move(result));
  }
}

void Conversation::join(Sample& sample) {
  if (sample.context.empty() || !last_ || last_->context != sample.context) {
    last_ = sample;
    return;
  }
  require_one_message(sample);
  KVARENA_ASSERT(last_->question == sample.question, fmt::format("{}: another context than {}", sample.id, last_->id));
  add_turn(*last_, last_->references.at(0), asked_by(sample));
  sample.messages = std::move(last_->messages);
  sample.turns = std::move(last_->turns);
  sample.results = std::move(last_->results);
  last_ = sample;
}

}  // namespace kvarena::datasets
