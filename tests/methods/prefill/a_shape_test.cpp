// A-shape: the authors' code (tests/golden/sparse_prefill.py), masked attention in double, prompts that fit, layers
// with a window of their own.

#include "tests/methods/prefill/prefill_support.h"

namespace kvarena {
namespace {

using Request = testing::PrefillRequest;

TEST(AShape, AttendsAsTheAuthorsCode) { testing::expect_golden_rows("a_shape"); }

nlohmann::json spec(int64_t sinks, int64_t local) { return {{"name", "a_shape"}, {"sinks", sinks}, {"local", local}}; }

TEST(AShape, AttendsToTheFirstEntriesAndAWindow) {
  for (const auto& [sinks, local] : {std::pair{0, 1}, {1, 1}, {5, 37}, {64, 128}, {130, 100}}) {
    testing::expect_attends(Request(spec(sinks, local), 333, 5),
                            [&](int64_t, int64_t row, int64_t entry) { return entry < sinks || entry > row - local; });
  }
}

TEST(AShape, LeavesAPromptThatFitsAsItIs) {
  const Request request(spec(100, 101), 201, 3);
  EXPECT_EQ(request.cache.layers[0].view, nullptr);
  EXPECT_EQ(request.activity.entries_skipped, 0);
}

TEST(AShape, LeavesALayerWithAWindowAsItIs) {
  LayerShape shape = Request::kShape;
  shape.window = 64;
  EXPECT_EQ(Request(spec(4, 8), 201, 3, shape).cache.layers[0].view, nullptr);
}

TEST(AShape, ATokenBehindThePromptAttendsToEverything) {
  Request request(spec(4, 8), 201, 3);
  LayerCache& layer = request.cache.layers[0];
  layer.view.reset();
  layer.append(request.keys.data(), request.values.data(), 1, Request::kRow, 201);
  LayerContext context{.layer = 0, .layers = 1, .cache = layer, .activity = request.activity, .prompt_tokens = 201};
  request.method->select(context, {.q = request.q.data(), .q_len = 1, .q_stride = Request::kQuery, .position = 201});
  EXPECT_EQ(layer.view, nullptr);
}

}  // namespace
}  // namespace kvarena
