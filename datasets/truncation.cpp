#include "datasets/truncation.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "harness/core/error.h"

namespace kvarena::datasets {

MiddleCut middle_cut(size_t n, int64_t max_length, TruncationRule rule) {
  const auto limit = static_cast<size_t>(std::max<int64_t>(max_length, 0));
  if (n <= limit || rule == TruncationRule::none) return {.head = n, .tail = 0};
  const size_t half = limit / 2;
  return {.head = half, .tail = rule == TruncationRule::middle_joined ? limit - half : half};
}

namespace {

// Moves a byte position of the old text into head + tail. The tail is a suffix of the old text, up to white space
// that some tokenizers drop at the start of a decoded text.
size_t moved_position(size_t byte, size_t old_size, size_t head_bytes, size_t new_size) {
  if (byte <= head_bytes) return byte;
  const size_t from_end = old_size - byte;
  return new_size - std::min(from_end, new_size - head_bytes);
}

[[noreturn]] void fail_to_cut(const Sample& sample, size_t whole, const std::string& expected) {
  fail({.place = sample.id,
        .found = fmt::format("{} tokens outside the part that can be cut", whole),
        .expected = expected,
        .action = "raise max_prompt_tokens"});
}

/// Cuts `text`, the message where the question starts, or the last one where nothing is before the question; `others`
/// tokens are outside it. HELMET takes as many as there are too many; with a mark ZeroSCROLLS fills what the mark and
/// the rest, as tokens of their own, leave.
void cut_context_end(Sample& sample, std::string& text, size_t others, int64_t max_tokens, const TokenCounter& tokens) {
  const int64_t excess = sample.truncation.tokens_before - max_tokens;
  if (excess <= 0) return;
  const size_t end = sample.has_context() ? sample.question.byte : text.size();
  const std::string rest = sample.cut_mark + text.substr(end);
  const std::vector<int32_t> before = tokens.encode(std::string_view(text).substr(0, end));
  const size_t whole = others + tokens.encode(rest).size();
  const int64_t fits = sample.cut_mark.empty() ? std::ssize(before) - excess : max_tokens - static_cast<int64_t>(whole);
  const int64_t kept = std::min<int64_t>(fits, std::ssize(before));
  if (kept <= 0) fail_to_cut(sample, whole, fmt::format("fewer than the limit of {}", max_tokens));
  const std::string head = tokens.decode(std::span(before).first(static_cast<size_t>(kept)));
  if (sample.has_context()) {
    sample.question.byte = head.size() + sample.cut_mark.size();
    for (PromptPosition& turn : sample.turns) {
      if (turn.message == sample.question.message) turn.byte = turn.byte - end + sample.question.byte;
    }
  }
  text = head + rest;
  sample.truncation.tokens_removed = std::ssize(before) - kept;
}

}  // namespace

void truncate_prompt(Sample& sample, TruncationRule rule, int64_t max_tokens, const TokenCounter& tokens) {
  const bool at_end = rule == TruncationRule::context_end;
  const size_t shortened_at = at_end && sample.has_context() ? sample.question.message : sample.messages.size() - 1;
  // Messages other than the one that is cut take their part of the limit, and so does BOS.
  auto others = static_cast<size_t>(tokens.leading_special_tokens());
  for (size_t i = 0; i < sample.messages.size(); ++i) {
    if (i != shortened_at) others += tokens.encode(sample.messages[i].content).size();
  }
  std::string& text = sample.messages[shortened_at].content;
  const std::vector<int32_t> ids = tokens.encode(text);
  const size_t n = others + ids.size();
  sample.truncation.tokens_before = static_cast<int64_t>(n);
  if (at_end) {
    cut_context_end(sample, text, others, max_tokens, tokens);
    return;
  }
  const MiddleCut cut = middle_cut(n, max_tokens, rule);
  if (cut.head + cut.tail == n) return;
  // Both halves must contain something of the message, else the prompt would lose its question or its system text.
  if (cut.head <= others || cut.tail > ids.size()) {
    fail_to_cut(sample, n - ids.size(), fmt::format("fewer than half of the limit of {}", max_tokens));
  }
  const size_t head = cut.head - others;
  const std::span<const int32_t> all(ids);
  const std::string head_text = tokens.decode(all.first(head));
  std::string shortened;
  if (rule == TruncationRule::middle_joined) {
    std::vector<int32_t> kept(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(head));
    kept.insert(kept.end(), ids.end() - static_cast<ptrdiff_t>(cut.tail), ids.end());
    shortened = tokens.decode(kept);
  } else {
    shortened = head_text + tokens.decode(all.last(cut.tail));
  }
  if (sample.question.message + 1 == sample.messages.size()) {
    sample.question.byte = moved_position(sample.question.byte, text.size(),
                                          std::min(head_text.size(), shortened.size()), shortened.size());
  }
  text = std::move(shortened);
  sample.truncation.tokens_removed = static_cast<int64_t>(n - cut.head - cut.tail);
}

}  // namespace kvarena::datasets
