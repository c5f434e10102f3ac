#include "harness/evaluate/shared_prefix.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "harness/core/error.h"

namespace kvarena::evaluate {

std::string prefix_text(const datasets::TokenCounter& tokens, int64_t count) {
  std::string text;
  std::vector<int32_t> ids;
  for (int64_t i = 1; std::ssize(ids) < count; ++i) {
    text += fmt::format("Rule {}: what the text before a question says counts, and nothing else. ", i);
    ids = tokens.encode(text);
  }
  return tokens.decode(std::span(ids).first(static_cast<size_t>(count))) + "\n";
}

void put_in_front(const std::string& text, datasets::Sample& sample) {
  KVARENA_ASSERT(!sample.messages.empty(), "a sample without a message");
  sample.messages.front().content.insert(0, text);
  if (sample.question.message == 0 && sample.has_context()) sample.question.byte += text.size();
  for (datasets::PromptPosition& turn : sample.turns) {
    if (turn.message == 0) turn.byte += text.size();
  }
  for (datasets::ToolResult& result : sample.results) {
    if (result.message > 0) continue;
    result.begin += text.size();
    result.end += text.size();
  }
  sample.prompt_sha256 = datasets::prompt_sha256(sample);
}

}  // namespace kvarena::evaluate
