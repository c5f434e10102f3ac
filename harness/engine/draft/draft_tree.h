#pragma once
// A tree of drafts that grows by its likeliest paths. Li et al. 2024 (EAGLE-2), arXiv:2406.16858, section 4.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/cache/layer_cache.h"
#include "harness/method/draft_head.h"

namespace kvarena {

struct TreeShape {
  int64_t depth = 1;   // tokens of the longest path
  int64_t beams = 1;   // paths that go on at each depth, each by as many tokens
  int64_t tokens = 1;  // that the tree has at most
};

struct DraftTree {
  std::vector<int32_t> tokens;   // of the model
  std::vector<int32_t> parents;  // of each a lower place, or -1 for the first of a path
};

/// Grows a tree and keeps the tokens with the likeliest paths, in the order in which they were seen. `row`: the head's
/// output for the newest of `cache`'s entries, [hidden_size]. The cache is left as it was.
[[nodiscard]] DraftTree grow_tree(const DraftHead& head, const ModelFacts& facts, KvCache& cache,
                                  std::span<const float> row, const TreeShape& shape);

}  // namespace kvarena
