#include "harness/model/tokenizer/token_ranges.h"

#include <algorithm>

namespace kvarena {
namespace {

/// Distance, for each token that could not be matched, within which the next token's bytes are looked for.
constexpr size_t kReach = 8;

/// Walks over text and tokens together.
class Walk {
 public:
  explicit Walk(std::string_view text) : text_(text) {}

  void take(std::string_view bytes) {
    const size_t at = place_of(bytes);
    if (at == std::string_view::npos) {
      ++unmatched_;
      ranges_.push_back({.begin = cursor(), .end = cursor()});
      return;
    }
    close(at);
    ranges_.push_back({.begin = cursor(), .end = static_cast<int64_t>(at + bytes.size())});
    at_ = at + bytes.size();
  }

  std::vector<TextRange> finish() {
    if (unmatched_ == 0 && !ranges_.empty()) ranges_.back().end = static_cast<int64_t>(text_.size());
    close(text_.size());
    return std::move(ranges_);
  }

 private:
  [[nodiscard]] int64_t cursor() const { return static_cast<int64_t>(at_); }

  [[nodiscard]] size_t place_of(std::string_view bytes) const {
    if (text_.substr(at_).starts_with(bytes)) return unmatched_ == 0 || !bytes.empty() ? at_ : std::string_view::npos;
    if (unmatched_ == 0 || bytes.empty()) return std::string_view::npos;
    return text_.substr(0, std::min(text_.size(), at_ + bytes.size() + kReach * unmatched_)).find(bytes, at_);
  }

  /// Gives the text up to `end` to the tokens that were not matched.
  void close(size_t end) {
    if (unmatched_ == 0) return;
    for (size_t i = ranges_.size() - unmatched_; i < ranges_.size(); ++i) ranges_[i].end = static_cast<int64_t>(end);
    at_ = end;
    unmatched_ = 0;
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t unmatched_ = 0;  // newest tokens whose bytes did not come
  std::vector<TextRange> ranges_;
};

}  // namespace

std::vector<TextRange> token_ranges(const Tokenizer& tokenizer, std::span<const int32_t> ids, std::string_view text) {
  Walk walk(text);
  size_t written = 0;  // bytes of the tokens so far
  for (const int32_t id : ids) {
    const std::string bytes = tokenizer.token_bytes(id, written == 0);
    const bool absent = written == 0 && tokenizer.is_special(id) && !text.starts_with(bytes);
    walk.take(absent ? std::string_view() : std::string_view(bytes));
    if (!absent) written += bytes.size();
  }
  return walk.finish();
}

}  // namespace kvarena
