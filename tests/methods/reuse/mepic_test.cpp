// MEPIC: which tokens are computed anew and the logits, by its paper's section 3 restated in float64
// (tests/golden/reuse_methods.py), and whose memory the rest lies in.

#include "harness/cache/moved_segment.h"
#include "tests/methods/reuse/reused_prompt.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::run;
using testing::tiny_model;
using testing::tiny_prompt;

/// Keys and values of a head, of all segments in order.
std::vector<float> entries_in(const LayerCache& layer, int64_t head) {
  std::vector<float> all;
  for (const auto& segment : layer.segments()) {
    const auto floats = static_cast<size_t>(segment->entries(head) * layer.shape().head_dim);
    std::vector<float> rows(2 * floats);
    segment->read(head, rows.data(), rows.data() + floats);
    for (size_t i = 0; i < floats; ++i) {
      all.push_back(rows[i]);
      all.push_back(rows[floats + i]);
    }
  }
  return all;
}

std::vector<float> logits_after(Transformer& model, KvCache& cache, int32_t token) {
  const SequencePass pass{.tokens = {&token, 1}, .cache = &cache};
  const std::span<const float> row = model.forward({&pass, 1});
  return {row.begin(), row.end()};
}

TEST(Mepic, ComputesAndPredictsAsTheReference) { testing::expect_golden_reuse("mepic", 9); }

TEST(Mepic, ReadsChunksOfWholeBlocksAsEpicAndDecodesOverTheirOwnCells) {
  Transformer model = tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  const std::vector<int32_t> tokens = tiny_prompt(16 + 3 * 64 + 9);
  const PromptLayout layout{.prefix = 16, .question = 16 + 3 * 64};
  ReusedPrompt copied = run(model, tokens, layout, {{"name", "epic"}, {"tokens", 16}, {"chunk", 64}});
  ReusedPrompt shared = run(model, tokens, layout, {{"name", "mepic"}, {"chunk", 64}});
  EXPECT_EQ(shared.record.recomputed, copied.record.recomputed);
  EXPECT_EQ(shared.logits, copied.logits);
  for (size_t l = 0; l < shared.cache.layers.size(); ++l) {
    const LayerCache& layer = shared.cache.layers[l];
    ASSERT_EQ(layer.segments().size(), 8U) << "the prefix's cells, thrice a block and cells, the question";
    EXPECT_EQ(layer.segments()[1]->positions(0).front(), 16);
    EXPECT_EQ(layer.segments()[4]->positions(0).front(), 16 + 64 + 16);
    const std::vector<float> a = entries_in(layer, 1), b = entries_in(copied.cache.layers[l], 1);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5) << l << " " << i;
  }
  KvCache clone = shared.cache.clone();
  const std::vector<float> expected = logits_after(model, copied.cache, 5);
  const std::vector<float> found = logits_after(model, shared.cache, 5);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << i;
  EXPECT_EQ(logits_after(model, clone, 5), found);
}

TEST(Mepic, RequestsShareTheCellsBehindEachChunksFirst) {
  Transformer model = tiny_model();
  const std::vector<int32_t> a = tiny_prompt(320, 1), b = tiny_prompt(320, 2);
  std::vector<int32_t> ab = a, ba = b;
  ab.insert(ab.end(), b.begin(), b.end());
  ba.insert(ba.end(), a.begin(), a.end());
  ab.push_back(9);
  ba.push_back(9);
  const auto method = make_method({{"name", "mepic"}, {"chunk", 320}}, "test");
  ReuseMemory memory;  // holds both chunks from here on
  prime(model, ab, {}, *method->reuser(), memory);
  const auto held = [] { return MemoryLedger::process().current(Tier::device); };
  const auto added = [&](const std::vector<int32_t>& tokens, std::vector<ReusedPrompt>& alive) {
    const int64_t before = held();
    alive.push_back(reuse_prompt(model, tokens, {}, *method->reuser(), memory));
    return held() - before;
  };
  std::vector<ReusedPrompt> alive;
  const int64_t first = added(ab, alive), second = added(ba, alive);
  const int64_t cell = std::ssize(alive[0].cache.layers) * 16 * model.layer_shape(0).entry_bytes();
  EXPECT_EQ(second, first);
  EXPECT_LE(second, 3 * cell) << "the second chunk's first cell and the question's";
  EXPECT_GE(alive[1].cache.bytes(), 40 * cell) << "as the request would hold it alone";
}

}  // namespace
}  // namespace kvarena
