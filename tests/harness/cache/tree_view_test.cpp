// Rows of a tree against chains that hold their paths alone.

#include "harness/cache/tree_view.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/cache/attend_plan.h"
#include "harness/cache/layer_cache.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using testing::random_floats;

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::bf16};
constexpr int64_t kRow = 2 * 16;    // floats of an entry's keys
constexpr int64_t kQuery = 4 * 16;  // floats of a query row

const std::vector<int32_t> kParents = {-1, 0, 0, 1, 2, -1, 3, 3, 5};

struct Attended {
  std::vector<float> out;
  std::vector<float> lse;
};

Attended attend(const LayerCache& layer, const float* q, int64_t q_len) {
  Attended result{.out = std::vector<float>(q_len * kQuery), .lse = std::vector<float>(q_len * 4)};
  std::vector<float> max(q_len * 4);
  std::vector<float> sum(q_len * 4);
  kernels::AttentionState state{.out = result.out.data(), .max = max.data(), .sum = sum.data()};
  kernels::init_attention(state, q_len, 4, 16);
  kvarena::attend(layer.plan({.q = q, .q_len = q_len, .q_stride = kQuery}), state);
  kernels::finish_attention(state, q_len, 4, 16, result.lse.data());
  return result;
}

std::vector<int32_t> path_of(int32_t node) {
  std::vector<int32_t> path;
  for (; node >= 0; node = kParents[node]) path.insert(path.begin(), node);
  return path;
}

/// Before the tree: nothing, part of a chunk, a whole one, and several with a part.
class TreeViews : public ::testing::TestWithParam<int64_t> {
 protected:
  TreeViews() {
    tree_.layers[0].append(before_.data(), before_.data(), GetParam(), kRow, 0);
    tree_.layers[0].append(nodes_.data(), nodes_.data(), nodes(), kRow, GetParam());
    tree_.layers[0].view = std::make_unique<TreeView>(tree_.layers[0].tail(), kParents);
  }
  static int64_t nodes() { return static_cast<int64_t>(kParents.size()); }

  /// The cache of a chain that holds a node's path.
  KvCache chain(int32_t node) const {
    KvCache cache(1, kShape);
    cache.layers[0].append(before_.data(), before_.data(), GetParam(), kRow, 0);
    int64_t position = GetParam();
    for (const int32_t step : path_of(node)) {
      cache.layers[0].append(&nodes_[step * kRow], &nodes_[step * kRow], 1, kRow, position++);
    }
    return cache;
  }

  const std::vector<float> before_ = random_floats(std::max<int64_t>(1, GetParam()) * kRow, "before");
  const std::vector<float> nodes_ = random_floats(nodes() * kRow, "nodes");
  const std::vector<float> q_ = random_floats(nodes() * kQuery, "q");
  KvCache tree_{1, kShape};
};

TEST_P(TreeViews, RowsHaveTheBitsOfTheirChains) {
  const Attended all = attend(tree_.layers[0], q_.data(), nodes());
  for (int32_t node = 0; node < nodes(); ++node) {
    const Attended alone = attend(chain(node).layers[0], &q_[node * kQuery], 1);
    EXPECT_TRUE(std::equal(alone.out.begin(), alone.out.end(), all.out.begin() + node * kQuery)) << node;
    EXPECT_TRUE(std::equal(alone.lse.begin(), alone.lse.end(), all.lse.begin() + node * 4)) << node;
  }
}

TEST_P(TreeViews, ProbabilitiesAreThoseOfTheirChains) {
  const int64_t entries = GetParam() + nodes();
  const Attended all = attend(tree_.layers[0], q_.data(), nodes());
  std::vector<float> found(4 * entries);
  add_probabilities(tree_.layers[0].plan({.q = q_.data(), .q_len = nodes(), .q_stride = kQuery}), all.lse.data(),
                    found.data(), entries);
  std::vector<float> expected(found.size());
  for (int32_t node = 0; node < nodes(); ++node) {
    const KvCache cache = chain(node);
    const std::vector<int32_t> path = path_of(node);
    const auto width = GetParam() + static_cast<int64_t>(path.size());
    std::vector<float> row(4 * width);
    add_probabilities(plan_of(cache.layers[0].tail(), {.q = &q_[node * kQuery], .q_len = 1, .q_stride = kQuery}),
                      &all.lse[node * 4], row.data(), width);
    for (int64_t head = 0; head < 4; ++head) {
      for (int64_t i = 0; i < width; ++i) {
        const int64_t entry = i < GetParam() ? i : GetParam() + path[i - GetParam()];
        expected[head * entries + entry] += row[head * width + i];
      }
    }
  }
  EXPECT_EQ(found, expected);
}

INSTANTIATE_TEST_SUITE_P(Lengths, TreeViews, ::testing::Values(0, 5, kernels::kChunk, 3 * kernels::kChunk + 17));

}  // namespace
}  // namespace kvarena
