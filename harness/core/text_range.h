#pragma once
// The place of a token in a text.

#include <algorithm>
#include <cstdint>

namespace kvarena {

/// Bytes begin .. end-1 of a text; begin == end for a token without text.
struct TextRange {
  int64_t begin = 0;
  int64_t end = 0;

  [[nodiscard]] bool overlaps(const TextRange& other) const {
    return std::max(begin, other.begin) < std::min(end, other.end);
  }
  bool operator==(const TextRange&) const = default;
};

}  // namespace kvarena
