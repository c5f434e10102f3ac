#include <algorithm>

#include "harness/method/verifier.h"

namespace kvarena {
namespace {

/// Prompt lookup: the newest tokens are searched in prompt and answer so far, the longest n-gram first, and what
/// followed their earliest occurrence is proposed. Greedy by nature: proposals are point masses.
/// Saxena 2023, prompt-lookup-decoding (code); defaults are that code's.
class NGram final : public Verifier {
 public:
  void parameters(ParameterVisitor& p) override {
    p("draft_length", draft_length_).min(1).doc("tokens proposed before each verification");
    p("max_ngram", max_ngram_).min(1).doc("newest tokens that are looked up, fewer where so many are not found");
  }
  int64_t draft_length() const override { return draft_length_; }

  Drafter drafter() const override {
    return TextRule{[this](std::span<const int32_t> history, int64_t limit) { return propose(history, limit); }};
  }

 private:
  [[nodiscard]] std::vector<int32_t> propose(std::span<const int32_t> history, int64_t limit) const {
    const auto n = static_cast<int64_t>(history.size());
    const auto earlier = history.first(static_cast<size_t>(n - 1));  // the newest n-gram must not find itself
    for (int64_t length = std::min(max_ngram_, n - 1); length > 0; --length) {
      const auto found = std::ranges::search(earlier, history.last(static_cast<size_t>(length)));
      if (found.empty()) continue;
      const auto after = history.subspan(static_cast<size_t>(found.end() - earlier.begin()));
      const auto proposed = after.first(std::min(after.size(), static_cast<size_t>(limit)));
      return {proposed.begin(), proposed.end()};
    }
    return {};
  }

  int64_t draft_length_ = 10;
  int64_t max_ngram_ = 3;
};

KVARENA_VERIFIER(NGram, {.name = "ngram",
                         .title = "Prompt lookup",
                         .summary = "Drafts what followed the newest tokens before, and verifies: lossless.",
                         .paper = "Saxena 2023, prompt-lookup-decoding"});

}  // namespace
}  // namespace kvarena
