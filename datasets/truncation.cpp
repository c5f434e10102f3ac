#include "datasets/truncation.h"

#include <fmt/format.h>

#include <algorithm>

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

}  // namespace

void truncate_prompt(Sample& sample, TruncationRule rule, int64_t max_tokens, const TokenCounter& tokens) {
  // Messages other than the one that is cut take their part of the limit, and so does BOS.
  auto others = static_cast<size_t>(tokens.leading_special_tokens());
  for (size_t i = 0; i + 1 < sample.messages.size(); ++i) others += tokens.encode(sample.messages[i].content).size();
  std::string& text = sample.messages.back().content;
  const std::vector<int32_t> ids = tokens.encode(text);
  const size_t n = others + ids.size();
  sample.truncation.tokens_before = static_cast<int64_t>(n);
  const MiddleCut cut = middle_cut(n, max_tokens, rule);
  if (cut.head + cut.tail == n) return;
  // Both halves must contain something of the message, else the prompt would lose its question or its system text.
  if (cut.head <= others || cut.tail > ids.size()) {
    fail({.place = sample.id,
          .found = fmt::format("{} tokens outside the part that can be cut", n - ids.size()),
          .expected = fmt::format("fewer than half of the limit of {}", max_tokens),
          .action = "raise max_prompt_tokens"});
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
