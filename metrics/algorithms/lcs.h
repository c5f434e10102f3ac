#pragma once
// Longest common subsequences of integer sequences, with the two backtracking orders of the ROUGE packages.

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace kvarena::metrics {

/// Words of any number of texts as small integers, equal words as equal integers.
class Vocabulary {
 public:
  [[nodiscard]] std::vector<int> ids(std::span<const std::string> words);
  [[nodiscard]] int size() const { return static_cast<int>(ids_.size()); }

 private:
  std::unordered_map<std::string, int> ids_;
};

/// Length of the longest common subsequence. O(|x| |y| / 64) time, O(|y|) memory.
[[nodiscard]] int64_t lcs_length(std::span<const int> x, std::span<const int> y);

/// Which sequence loses its last word when the table shows the same length both ways.
enum class Tie { drop_x, drop_y };

struct LcsPath {
  std::vector<int64_t> positions;  ///< ascending indices into x of the words of one longest common subsequence
  int64_t steps = 0;               ///< moves of the backtracking, the depth of a recursive implementation
};

/// One longest common subsequence, found by backtracking from the end: equal words are taken; otherwise the way with
/// the larger table entry, ties as given. O(|x| |y| / 64) time, |x| |y| / 8 bytes.
[[nodiscard]] LcsPath lcs_path(std::span<const int> x, std::span<const int> y, Tie tie);

}  // namespace kvarena::metrics
