// The radix tree against a list of everything that was put in.

#include "harness/engine/reuse/prefix_tree.h"

#include <gtest/gtest.h>

#include "harness/core/random.h"
#include "tests/harness/engine/reuse/support.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using testing::expect_same_bits;
using testing::tiny_model;
using testing::tiny_prompt;

constexpr LayerShape kShape{.q_heads = 1, .kv_heads = 1, .head_dim = 16, .dtype = kernels::DType::f32};

/// Entries that spell the tokens in front of them, as a prefill's do: each is a sum over its prefix.
KvCache entries(const std::vector<int32_t>& tokens) {
  KvCache cache(1, kShape);
  std::vector<float> rows;
  float sum = 0;
  for (const int32_t token : tokens) {
    sum = 0.5F * sum + static_cast<float>(token) + 1;
    rows.insert(rows.end(), 16, sum);
  }
  cache.layers[0].append(rows.data(), rows.data(), static_cast<int64_t>(tokens.size()), 16, 0);
  cache.length = static_cast<int64_t>(tokens.size());
  return cache;
}

/// Appends what the tree finds to an empty cache.
int64_t read(PrefixTree& tree, std::span<const int32_t> tokens, KvCache& cache) {
  for (const PrefixTree::Piece& piece : tree.find(tokens)) {
    cache.layers[0].tail().append_entries(piece.cache->layers[0].tail(), 0, piece.count);
    cache.length += piece.count;
  }
  return cache.length;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(PrefixTree, WholeBlocksOfASharedBeginningAreFound) {
  const std::vector<int32_t> shared = tiny_prompt(37, 1);
  const std::vector<int32_t> first = joined(shared, {1, 2, 3, 4, 5, 6, 7, 8});
  const std::vector<int32_t> second = joined(shared, {8, 7, 6, 5, 4, 3, 2, 1});
  for (const auto& [block, found] : {std::pair<int64_t, int64_t>{16, 32}, {1, 37}}) {
    PrefixTree tree(block);
    tree.insert(first, entries(first));
    EXPECT_EQ(tree.match(second), found);
    KvCache cache(1, kShape);
    EXPECT_EQ(read(tree, second, cache), found);
    KvCache expected = entries(second);
    expected.truncate(found);
    expect_same_bits(cache, expected);
  }
}

TEST(PrefixTree, FindsWhatAListOfAllPromptsFinds) {
  const RandomStream draws(20260102, "prompts");
  uint64_t drawn = 0;
  for (const int64_t block : {1, 2, 5}) {
    PrefixTree tree(block);
    std::vector<std::vector<int32_t>> held;
    for (int step = 0; step < 200; ++step) {
      SCOPED_TRACE(::testing::Message() << "block " << block << " step " << step);
      std::vector<int32_t> prompt;
      if (!held.empty() && draws.below(3, drawn++) > 0) {  // goes on from another one's beginning
        const auto& other = held[draws.below(held.size(), drawn++)];
        prompt.assign(other.begin(), other.begin() + static_cast<int64_t>(draws.below(other.size() + 1, drawn++)));
      }
      const uint64_t more = draws.below(12, drawn++);
      for (uint64_t i = 0; i < more; ++i) prompt.push_back(static_cast<int32_t>(draws.below(3, drawn++)));

      int64_t best = 0;
      for (const auto& other : held) {
        const auto whole = static_cast<int64_t>(other.size()) / block * block;
        const auto same = std::ranges::mismatch(prompt, std::span(other).first(whole)).in1 - prompt.begin();
        best = std::max<int64_t>(best, same / block * block);
      }
      KvCache cache(1, kShape);
      ASSERT_EQ(tree.match(prompt), best);
      ASSERT_EQ(read(tree, prompt, cache), best);
      KvCache expected = entries(prompt);
      expected.truncate(best);
      expect_same_bits(cache, expected);
      if (draws.below(2, drawn++) == 0) continue;
      tree.insert(prompt, entries(prompt));
      held.push_back(prompt);
    }
  }
}

TEST(PrefixTree, ForgetsTheLeastRecentlyUsedLeavesAndNoBeginningOfOthers) {
  const std::vector<int32_t> shared = tiny_prompt(32, 1);
  const std::vector<int32_t> a = joined(shared, tiny_prompt(16, 2));
  const std::vector<int32_t> b = joined(shared, tiny_prompt(16, 3));
  const std::vector<int32_t> c = joined(shared, tiny_prompt(16, 4));
  PrefixTree all(16);
  all.insert(a, entries(a));
  all.insert(b, entries(b));
  const int64_t two = all.bytes();
  EXPECT_EQ(all.tokens(), 64);

  PrefixTree tree(16, two);
  tree.insert(a, entries(a));
  tree.insert(b, entries(b));
  KvCache used(1, kShape);
  (void)read(tree, a, used);
  tree.insert(c, entries(c));
  EXPECT_LE(tree.bytes(), two);
  EXPECT_EQ(tree.match(a), 48);
  EXPECT_EQ(tree.match(b), 32) << "b was used longest ago; its beginning is others' too";
  EXPECT_EQ(tree.match(c), 48);

  PrefixTree small(16, 1);
  small.insert(a, entries(a));
  EXPECT_EQ(small.tokens(), 0);
  EXPECT_EQ(small.bytes(), 0);
}

}  // namespace
}  // namespace kvarena
