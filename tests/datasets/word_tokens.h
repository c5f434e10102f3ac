#pragma once
// A tokenizer for tests: a token is a run of letters and digits, or a single other character, with the blank before
// it. decode(encode(text)) == text, byte for byte; ids are given out in order of first sight.

#include <cctype>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/token_counter.h"

namespace kvarena::datasets {

class WordTokens final : public TokenCounter {
 public:
  explicit WordTokens(int64_t leading_special_tokens = 0) : leading_(leading_special_tokens) {}

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < text.size();) {
      size_t end = i;
      if (text[end] == ' ' && end + 1 < text.size()) ++end;
      if (word(text[end])) {
        while (end < text.size() && word(text[end])) ++end;
      } else {
        ++end;
      }
      ids.push_back(id_of(std::string(text.substr(i, end - i))));
      i = end;
    }
    return ids;
  }

  std::string decode(std::span<const int32_t> ids) const override {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const int32_t id : ids) text += texts_.at(static_cast<size_t>(id));
    return text;
  }

  int64_t leading_special_tokens() const override { return leading_; }

 private:
  // Bytes of multi-byte characters belong to words, so that no character is ever cut.
  static bool word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || static_cast<signed char>(c) < 0; }

  int32_t id_of(const std::string& token) const {
    const std::lock_guard lock(mutex_);
    const auto [at, added] = ids_.try_emplace(token, static_cast<int32_t>(texts_.size()));
    if (added) texts_.push_back(token);
    return at->second;
  }

  int64_t leading_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, int32_t> ids_;  // guarded by mutex_
  mutable std::vector<std::string> texts_;      // guarded by mutex_
};

}  // namespace kvarena::datasets
