#pragma once
// An answer's text as its tokens come, up to the first stop string.

#include <string>
#include <utility>
#include <vector>

#include "harness/model/tokenizer/tokenizer.h"

namespace kvarena::serve {

/// Whole characters alone; what may be the beginning of a stop string is held back.
class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops)
      : detokenizer_(tokenizer), stops_(std::move(stops)) {}

  /// The text that has become certain with this token; nothing more behind a stop string.
  [[nodiscard]] std::string push(int32_t token);
  /// Gives what was held back, once no token follows.
  [[nodiscard]] std::string finish();
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  [[nodiscard]] std::string release();

  Detokenizer detokenizer_;
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace kvarena::serve
