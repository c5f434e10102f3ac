// Selection, spans and alignment against their definitions, restated.

#include "harness/method/important_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/core/random.h"

namespace kvarena {
namespace {

using Set = std::set<int64_t>;

Set set_of(const std::vector<int32_t>& list) { return {list.begin(), list.end()}; }

std::vector<double> drawn(const RandomStream& draws, uint64_t first, size_t n, bool coarse) {
  std::vector<double> values;
  for (size_t i = 0; i < n; ++i) {
    // Coarse values are often equal, and often the least one.
    values.push_back(coarse ? static_cast<double>(draws.below(5, first + i)) : 1 + 9 * draws.uniform(first + i));
  }
  return values;
}

TEST(ImportantTokens, ByHand) {
  const std::vector<double> importance = {5, 5.5, 6, 6.5, 1, 2};
  const std::vector<int32_t> chosen = most_important(importance, 3);
  EXPECT_EQ(chosen, (std::vector<int32_t>{1, 2, 3}));
  const std::vector<PromptPart> spans = smooth_spans(importance, 0.4, 16);
  ASSERT_EQ(spans.size(), 3U);  // 0-3, 4, 5: from the least importance any step is infinite
  EXPECT_EQ(spans[0].end, 4);
  EXPECT_EQ(complete_spans(spans, chosen, 0.7), (std::vector<int32_t>{0, 1, 2, 3}));

  const std::vector<double> shorter = {5, 5.5, 6, 1, 2};
  const std::vector<int32_t> two = most_important(shorter, 2);
  EXPECT_EQ(two, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(complete_spans(smooth_spans(shorter, 0.4, 16), two, 0.7), two) << "two of three is not enough";
}

TEST(ImportantTokens, ImportanceIsTheMeanOverTheChosenLayers) {
  Speculation read{.layers = 16, .tokens = 2, .norms = std::vector<float>(32)};
  for (int64_t layer = 0; layer < 16; ++layer) read.norms[layer * 2 + 1] = static_cast<float>(layer + 1);
  EXPECT_DOUBLE_EQ(token_importance(read, "last_third")[1], (11 + 12 + 13 + 14 + 15 + 16) / 6.0);
  EXPECT_DOUBLE_EQ(token_importance(read, "last_two_thirds")[1], (6 + 16) / 2.0);
  EXPECT_DOUBLE_EQ(token_importance(read, "all")[1], 17 / 2.0);
  EXPECT_DOUBLE_EQ(token_importance(read, "final")[1], 16);
  EXPECT_DOUBLE_EQ(token_importance(read, "final")[0], 0);
}

/// Equations 2 to 6 from their text: spans as sets, one token after another.
Set restated_selection(const std::vector<double>& importance, double ratio, double smooth, double cover,
                       size_t longest) {
  const size_t n = importance.size();
  const auto count = static_cast<size_t>(std::ceil(ratio * static_cast<double>(n)));
  Set chosen;
  while (chosen.size() < count) {
    size_t best = n;
    for (size_t i = 0; i < n; ++i) {
      if (!chosen.contains(static_cast<int64_t>(i)) && (best == n || importance[i] > importance[best])) best = i;
    }
    chosen.insert(static_cast<int64_t>(best));
  }
  const double least = *std::min_element(importance.begin(), importance.end());
  const double most = *std::max_element(importance.begin(), importance.end());
  std::vector<double> scaled;
  for (const double value : importance) scaled.push_back(most == least ? 0 : (value - least) / (most - least));
  Set all = chosen;
  for (size_t begin = 0; begin < n;) {
    size_t end = begin + 1;
    while (end < n && end - begin < longest) {
      const double change = std::abs(scaled[end] - scaled[end - 1]);
      const bool joins = change == 0 ? smooth > 0 : scaled[end - 1] > 0 && change / scaled[end - 1] < smooth;
      if (!joins) break;
      ++end;
    }
    size_t covered = 0;
    for (size_t i = begin; i < end; ++i) covered += chosen.contains(static_cast<int64_t>(i)) ? 1 : 0;
    if (static_cast<double>(covered) / static_cast<double>(end - begin) >= cover) {
      for (size_t i = begin; i < end; ++i) all.insert(static_cast<int64_t>(i));
    }
    begin = end;
  }
  return all;
}

TEST(ImportantTokens, SpansAreCompletedAsThePaperDefinesThem) {
  const RandomStream draws(20260103, "importance");
  for (uint64_t round = 0; round < 300; ++round) {
    const size_t n = 1 + draws.below(70, 1000 * round);
    const std::vector<double> importance = drawn(draws, 1000 * round + 10, n, round % 3 == 0);
    const double ratio = 0.05 + 0.9 * draws.uniform(1000 * round + 1);
    const double smooth = draws.uniform(1000 * round + 2);
    const double cover = draws.uniform(1000 * round + 3) + 0.05;
    const auto longest = static_cast<int64_t>(1 + draws.below(20, 1000 * round + 4));
    const auto count = static_cast<int64_t>(std::ceil(ratio * static_cast<double>(n)));
    const std::vector<PromptPart> spans = smooth_spans(importance, smooth, longest);
    const std::vector<int32_t> completed = complete_spans(spans, most_important(importance, count), cover);
    EXPECT_TRUE(std::ranges::is_sorted(completed, std::less_equal{})) << "round " << round;
    EXPECT_EQ(set_of(completed), restated_selection(importance, ratio, smooth, cover, static_cast<size_t>(longest)))
        << "round " << round << ": " << n << " tokens, ratio " << ratio << ", smooth " << smooth << ", cover " << cover
        << ", longest " << longest;
  }
}

TEST(AlignTokens, ByHand) {
  const std::vector<TextRange> own = {{0, 3}, {3, 8}, {2, 4}};             // "New", " York"; a token across both
  const std::vector<TextRange> target = {{0, 2}, {2, 3}, {3, 6}, {6, 8}};  // "Ne", "w", " Yo", "rk"
  const auto aligned = [&](int32_t i) { return align_tokens(std::span(&i, 1), own, target); };
  EXPECT_EQ(aligned(0), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(aligned(1), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(aligned(2), (std::vector<int32_t>{1, 2}));
}

/// Ascending ranges over `bytes` bytes without a gap; some empty, some shared by several tokens.
std::vector<TextRange> cut(const RandomStream& draws, uint64_t first, int64_t bytes) {
  std::vector<TextRange> ranges;
  for (int64_t at = 0; at < bytes;) {
    const int64_t end = std::min(bytes, at + 1 + static_cast<int64_t>(draws.below(6, first++)));
    if (draws.below(8, first++) == 0) ranges.push_back({at, at});
    for (uint64_t times = draws.below(8, first++) == 0 ? 3 : 1; times > 0; --times) ranges.push_back({at, end});
    at = end;
  }
  return ranges;
}

TEST(AlignTokens, FindsEveryTokenThatSharesAByte) {
  const RandomStream draws(20260104, "ranges");
  for (uint64_t round = 0; round < 300; ++round) {
    const int64_t bytes = 1 + static_cast<int64_t>(draws.below(80, 2000 * round));
    const std::vector<TextRange> own = cut(draws, 2000 * round + 1, bytes);
    const std::vector<TextRange> target = cut(draws, 2000 * round + 800, bytes);
    std::vector<int32_t> selected;
    std::set<int64_t> marked;  // bytes of selected tokens
    for (size_t i = 0; i < own.size(); ++i) {
      if (draws.below(3, 2000 * round + 1600 + i) > 0) continue;
      selected.push_back(static_cast<int32_t>(i));
      for (int64_t byte = own[i].begin; byte < own[i].end; ++byte) marked.insert(byte);
    }
    Set expected;
    for (size_t j = 0; j < target.size(); ++j) {
      for (int64_t byte = target[j].begin; byte < target[j].end; ++byte) {
        if (marked.contains(byte)) expected.insert(static_cast<int64_t>(j));
      }
    }
    const std::vector<int32_t> aligned = align_tokens(selected, own, target);
    EXPECT_TRUE(std::ranges::is_sorted(aligned, std::less_equal{})) << "round " << round;
    EXPECT_EQ(set_of(aligned), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace kvarena
