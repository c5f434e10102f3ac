#include "metrics/algorithms/difflib.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "metrics/algorithms/lcs.h"

namespace kvarena::metrics {
namespace {

struct Block {
  size_t a, b, size;
};
struct Region {
  size_t a_begin, a_end, b_begin, b_end;
};

class Matcher {
 public:
  Matcher(std::u32string_view a, std::u32string_view b) : a_(a), b_(b), run_(b.size() + 1), last_run_(b.size() + 1) {
    for (size_t j = 0; j < b.size(); ++j) places_[b[j]].push_back(j);
    if (b.size() < 200) return;
    // autojunk: in a long text the frequent characters are no anchors, though blocks still grow over them.
    const size_t limit = b.size() / 100 + 1;
    std::erase_if(places_, [&](const auto& entry) { return entry.second.size() > limit; });
  }

  size_t matching_characters() {
    size_t total = 0;
    std::vector<Region> open = {{0, a_.size(), 0, b_.size()}};
    while (!open.empty()) {
      const Region region = open.back();
      open.pop_back();
      const Block block = longest_block(region);
      if (block.size == 0) continue;
      total += block.size;
      if (region.a_begin < block.a && region.b_begin < block.b) {
        open.push_back({region.a_begin, block.a, region.b_begin, block.b});
      }
      if (block.a + block.size < region.a_end && block.b + block.size < region.b_end) {
        open.push_back({block.a + block.size, region.a_end, block.b + block.size, region.b_end});
      }
    }
    return total;
  }

 private:
  // The longest block of anchors, of equals the first in a, then in b; then grown both ways over equal characters.
  Block longest_block(const Region& r) {
    Block best{r.a_begin, r.b_begin, 0};
    std::vector<size_t> touched, last_touched;  // places of run_ and last_run_ that are not 0
    for (size_t i = r.a_begin; i < r.a_end; ++i) {
      const auto found = places_.find(a_[i]);
      if (found != places_.end()) {
        for (const size_t j : found->second) {
          if (j < r.b_begin) continue;
          if (j >= r.b_end) break;
          const size_t k = last_run_[j] + 1;  // last_run_[j]: block that ends at (i-1, j-1)
          run_[j + 1] = k;
          touched.push_back(j + 1);
          if (k > best.size) best = {i + 1 - k, j + 1 - k, k};
        }
      }
      for (const size_t j : last_touched) last_run_[j] = 0;
      std::swap(run_, last_run_);
      std::swap(touched, last_touched);
      touched.clear();
    }
    for (const size_t j : last_touched) last_run_[j] = 0;
    while (best.a > r.a_begin && best.b > r.b_begin && a_[best.a - 1] == b_[best.b - 1]) {
      --best.a, --best.b, ++best.size;
    }
    while (best.a + best.size < r.a_end && best.b + best.size < r.b_end &&
           a_[best.a + best.size] == b_[best.b + best.size]) {
      ++best.size;
    }
    return best;
  }

  std::u32string_view a_, b_;
  std::unordered_map<char32_t, std::vector<size_t>> places_;  // ascending positions in b of each anchor character
  std::vector<size_t> run_, last_run_;  // [|b|+1]: size of the block that ends before column j, this row and the last
};

double ratio_of(size_t matches, size_t length) {
  return length == 0 ? 1.0 : 2.0 * static_cast<double>(matches) / static_cast<double>(length);
}

}  // namespace

double difflib_ratio(std::u32string_view a, std::u32string_view b) {
  return ratio_of(Matcher(a, b).matching_characters(), a.size() + b.size());
}

double indel_ratio(std::u32string_view a, std::u32string_view b) {
  // Insertions and deletions alone: d = |a| + |b| - 2 LCS.
  const std::vector<int> x(a.begin(), a.end());
  const std::vector<int> y(b.begin(), b.end());
  return ratio_of(static_cast<size_t>(lcs_length(x, y)), a.size() + b.size());
}

}  // namespace kvarena::metrics
