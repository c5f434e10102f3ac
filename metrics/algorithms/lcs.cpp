#include "metrics/algorithms/lcs.h"

#include <algorithm>
#include <bit>

namespace kvarena::metrics {
namespace {

// Bit-parallel table (Hyyrö 2004): bit j of row i is 0 exactly where T[i][j+1] = T[i][j] + 1, so a row of the usual
// table is the running count of zeros, and a row follows from the last in |y|/64 additions with carry.
class BitTable {
 public:
  explicit BitTable(std::span<const int> y) : blocks_((y.size() + 63) / 64) {
    for (size_t j = 0; j < y.size(); ++j) {
      auto& mask = masks_[y[j]];
      mask.resize(blocks_);
      mask[j / 64] |= uint64_t{1} << (j % 64);
    }
  }

  [[nodiscard]] size_t blocks() const { return blocks_; }

  void next_row(int word, std::span<const uint64_t> above, std::span<uint64_t> row) const {
    const auto found = masks_.find(word);
    if (found == masks_.end()) {
      std::copy(above.begin(), above.end(), row.begin());
      return;
    }
    uint64_t carry = 0;
    for (size_t b = 0; b < blocks_; ++b) {
      const uint64_t matches = above[b] & found->second[b];
      const unsigned __int128 sum = static_cast<unsigned __int128>(above[b]) + matches + carry;
      row[b] = static_cast<uint64_t>(sum) | (above[b] & ~matches);
      carry = static_cast<uint64_t>(sum >> 64);
    }
  }

 private:
  size_t blocks_;
  std::unordered_map<int, std::vector<uint64_t>> masks_;
};

// T[i][j] of a row: zeros among its first j bits.
int64_t zeros_before(std::span<const uint64_t> row, size_t j) {
  int64_t ones = 0;
  for (size_t b = 0; b < j / 64; ++b) ones += std::popcount(row[b]);
  if (j % 64 != 0) ones += std::popcount(row[j / 64] & ((uint64_t{1} << (j % 64)) - 1));
  return static_cast<int64_t>(j) - ones;
}

}  // namespace

std::vector<int> Vocabulary::ids(std::span<const std::string> words) {
  std::vector<int> out;
  out.reserve(words.size());
  for (const std::string& word : words) out.push_back(ids_.emplace(word, size()).first->second);
  return out;
}

int64_t lcs_length(std::span<const int> x, std::span<const int> y) {
  const BitTable table(y);
  std::vector<uint64_t> row(table.blocks(), ~uint64_t{0});
  for (const int word : x) table.next_row(word, row, row);
  return zeros_before(row, y.size());
}

LcsPath lcs_path(std::span<const int> x, std::span<const int> y, Tie tie) {
  LcsPath path;
  const BitTable table(y);
  const size_t blocks = table.blocks();
  std::vector<uint64_t> bits((x.size() + 1) * blocks, ~uint64_t{0});  // [|x|+1, blocks]
  const auto row = [&](size_t i) { return std::span(bits).subspan(i * blocks, blocks); };
  for (size_t i = 0; i < x.size(); ++i) table.next_row(x[i], row(i), row(i + 1));

  size_t i = x.size();
  size_t j = y.size();
  for (; i > 0 && j > 0; ++path.steps) {
    if (x[i - 1] == y[j - 1]) {
      path.positions.push_back(static_cast<int64_t>(--i));
      --j;
      continue;
    }
    const int64_t without_x = zeros_before(row(i - 1), j);
    const int64_t without_y = zeros_before(row(i), j - 1);
    const bool drop_x = without_x > without_y || (without_x == without_y && tie == Tie::drop_x);
    (drop_x ? i : j) -= 1;
  }
  std::reverse(path.positions.begin(), path.positions.end());
  return path;
}

}  // namespace kvarena::metrics
