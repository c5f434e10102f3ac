#include "harness/model/tokenizer/bpe_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/model/tokenizer/byte_alphabet.h"
#include "harness/model/tokenizer/utf8.h"

namespace kvarena {
namespace {

/// Longer tokens are never the result of training; trying all their cuts would take a damaged file's time.
constexpr size_t kLongestMerged = 4096;

void check_utf8(std::string_view text, const std::string& place, size_t index) {
  if (is_valid_utf8(text)) return;
  fail({.place = fmt::format("{}[{}]", place, index), .found = "bytes that are not UTF-8", .expected = "text"});
}

}  // namespace

void add_byte_level_token(Vocabulary& vocabulary, int32_t id, std::string_view text, const std::string& place) {
  check_utf8(text, place, static_cast<size_t>(id));
  std::string bytes;
  const bool mapped = append_bytes_of(text, bytes);
  vocabulary.set(id, mapped ? std::string_view(bytes) : text, mapped);
}

void add_text_token(Vocabulary& vocabulary, int32_t id, std::string_view text, const std::string& place) {
  check_utf8(text, place, static_cast<size_t>(id));
  vocabulary.set(id, text, true);
}

void MergeParser::fail_merge(std::string_view left, std::string_view right, std::string_view why) const {
  fail({.place = fmt::format("{}[{}]", place_, merges_.size()),
        .found = fmt::format("\"{}\" and \"{}\", {}", replace_malformed_utf8(left), replace_malformed_utf8(right), why),
        .expected = "two tokens of the vocabulary whose union is a token"});
}

bool MergeParser::append(std::string_view token) {
  if (!is_valid_utf8(token)) return false;
  if (byte_level_) return append_bytes_of(token, joined_);
  joined_ += token;
  return true;
}

void MergeParser::add(std::string_view left_and_right) {
  const size_t space = left_and_right.find(' ', 1);
  if (space == std::string_view::npos) fail_merge(left_and_right, "", "with no space between");
  add(left_and_right.substr(0, space), left_and_right.substr(space + 1));
}

void MergeParser::add(std::string_view left, std::string_view right) {
  joined_.clear();
  if (!append(left)) fail_merge(left, right, "of which the first is not text of this vocabulary");
  const size_t cut = joined_.size();
  if (!append(right)) fail_merge(left, right, "of which the second is not text of this vocabulary");
  const std::string_view whole = joined_;
  const Bpe::Merge merge{.left = vocabulary_.find(whole.substr(0, cut)),
                         .right = vocabulary_.find(whole.substr(cut)),
                         .result = vocabulary_.find(whole)};
  if (merge.left < 0) fail_merge(left, right, "of which the first is no token");
  if (merge.right < 0) fail_merge(left, right, "of which the second is no token");
  if (merge.result < 0) fail_merge(left, right, "whose union is no token");
  merges_.push_back(merge);
}

std::vector<Bpe::Merge> merges_from_scores(const Vocabulary& vocabulary, std::span<const float> scores) {
  std::vector<Bpe::Merge> merges;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view token = vocabulary.bytes(id);
    if (token.size() > kLongestMerged || vocabulary.find(token) != id) continue;
    const size_t before = merges.size();
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const int32_t left = vocabulary.find(token.substr(0, cut));
      const int32_t right = vocabulary.find(token.substr(cut));
      if (left >= 0 && right >= 0) merges.push_back({left, right, id});
    }
    std::sort(merges.begin() + static_cast<ptrdiff_t>(before), merges.end(),
              [](const Bpe::Merge& a, const Bpe::Merge& b) {
                return std::pair(a.left, a.right) < std::pair(b.left, b.right);
              });
  }
  std::stable_sort(merges.begin(), merges.end(), [&](const Bpe::Merge& a, const Bpe::Merge& b) {
    return scores[static_cast<size_t>(a.result)] > scores[static_cast<size_t>(b.result)];
  });
  return merges;
}

}  // namespace kvarena
