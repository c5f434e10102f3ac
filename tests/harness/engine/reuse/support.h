#pragma once
// Caches compared bit by bit.

#include <gtest/gtest.h>

#include <vector>

#include "harness/model/transformer.h"

namespace kvarena::testing {

/// Keys and values of one head, [entries, head_dim] each, one behind the other.
inline std::vector<float> entries_of(const LayerCache& layer, int64_t head) {
  const auto floats = static_cast<size_t>(layer.entries(head) * layer.shape().head_dim);
  std::vector<float> rows(2 * floats);
  layer.tail().read(head, rows.data(), rows.data() + floats);
  return rows;
}

inline void expect_same_bits(const KvCache& a, const KvCache& b) {
  ASSERT_EQ(a.length, b.length);
  for (size_t layer = 0; layer < a.layers.size(); ++layer) {
    for (int64_t head = 0; head < a.layers[layer].shape().kv_heads; ++head) {
      ASSERT_EQ(entries_of(a.layers[layer], head), entries_of(b.layers[layer], head))
          << "layer " << layer << " head " << head;
    }
  }
}

/// The prompt's full cache and the logits after its last token.
struct FullPrompt {
  FullPrompt(Transformer& model, const std::vector<int32_t>& tokens) : cache(model.make_cache()) {
    cache.prompt_length = static_cast<int64_t>(tokens.size());
    const SequencePass pass{.tokens = tokens, .cache = &cache};
    const std::span<const float> row = model.forward({&pass, 1});
    logits.assign(row.begin(), row.end());
  }
  KvCache cache;
  std::vector<float> logits;
};

}  // namespace kvarena::testing
