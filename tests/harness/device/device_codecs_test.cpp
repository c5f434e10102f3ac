// Entries that are put together, or that lie elsewhere, while requests decode on a device (emulated here): against the
// host, and against copies made anew.
#include <gtest/gtest.h>

#include "harness/engine/model_facts.h"
#include "harness/method/registry.h"
#include "tests/support/decoding.h"
#include "tests/support/differences.h"
#include "tests/support/imported_weights.h"
#include "tests/support/observing.h"
#include "tests/support/offloaded_model.h"
#include "tests/support/random_entries.h"

namespace kvarena::device {
namespace {

using nlohmann::json;
using testing::decode;
using testing::Decoded;
using testing::relative_error;
using testing::tiny_prompt;

constexpr double kRounding = 1e-4;  // of float32 sums in another order, over the largest logit

/// A method at work on a request's cache, as the engine has it.
class Compressing {
 public:
  Compressing(const json& spec, const Transformer& model, KvCache& cache)
      : method_(make_method(spec, "test")), facts_(model_facts(model, {})), cache_(&cache) {}

  void compress() {
    std::vector<LayerContext> layers;
    for (size_t i = 0; i < cache_->layers.size(); ++i) layers.push_back(context(i));
    const std::vector<LayerObservations> seen(layers.size(), LayerObservations{.entries = cache_->length});
    method_->compress_all(layers, seen);
  }
  void settle() {
    for (size_t i = 0; i < cache_->layers.size(); ++i) {
      LayerContext layer = context(i);
      method_->after_append(layer);
    }
  }

 private:
  [[nodiscard]] LayerContext context(size_t i) {
    return {.layer = static_cast<int64_t>(i),
            .layers = std::ssize(cache_->layers),
            .cache = cache_->layers[i],
            .activity = activity_,
            .prompt_tokens = cache_->prompt_length,
            .model = facts_.get(),
            .request = cache_};
  }

  std::unique_ptr<Method> method_;
  std::shared_ptr<const ModelFacts> facts_;
  KvCache* cache_;
  Activity activity_;
};

TEST(DeviceCodecs, WhatIsPutTogetherIsAttendedToAndFollowsStepByStep) {
  const std::vector<json> specs{{{"name", "gear"}, {"group_size", 16}, {"buffer", 16}},
                                {{"name", "kvquant"}, {"bits", 3}},
                                {{"name", "rotatekv"}, {"bits", 4}, {"massive", 0}},
                                {{"name", "turboquant"}, {"variant", "prod"}},
                                {{"name", "fp4"}, {"residual_length", 16}},
                                {{"name", "oscar"}, {"group_size", 16}, {"residual_length", 16}},
                                {{"name", "kvarn"}, {"group", 16}, {"sinks", 0}},
                                {{"name", "polarquant"}, {"group_size", 16}},
                                {{"name", "quantspec_kv"}, {"group_size", 16}, {"buffer", 4}},
                                {{"name", "minicache"}, {"retained", 0.2}},
                                {{"name", "xkv"}, {"group", 2}}};
  constexpr int64_t kPrompt = 200, kSteps = 24;
  const std::vector<int32_t> tokens = tiny_prompt(kPrompt + kSteps);
  for (const json& spec : specs) {
    SCOPED_TRACE(spec.dump());
    Transformer host = testing::tiny_model(1, kF32);
    Offloaded offloaded;
    KvCache cache = offloaded.model().make_cache();
    (void)fed(offloaded.model(), cache, std::span(tokens).first(kPrompt));
    Compressing method(spec, host, cache);
    method.compress();
    for (int64_t step = kPrompt; step < kPrompt + kSteps; ++step) {
      feed_as_anew(host, offloaded.model(), cache, std::span(tokens).subspan(step, 1));
      method.settle();
    }
    EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0);
  }
}

TEST(DeviceCodecs, LongRunsArePutTogetherPartByPart) {
  constexpr int64_t kEntries = 5000;  // three parts
  ModelConfig config = testing::tiny_config();
  config.max_position = 8192;
  Transformer host = testing::tiny_model(1, kF32, config);
  Offloaded offloaded(1 << 30, config);
  KvCache cache = offloaded.model().make_cache();
  for (LayerCache& layer : cache.layers) {
    const int64_t width = layer.shape().kv_heads * layer.shape().head_dim;
    const std::vector<float> keys = testing::random_floats(kEntries * width, "keys");
    const std::vector<float> values = testing::random_floats(kEntries * width, "values");
    layer.append(keys.data(), values.data(), kEntries, width, 0);
  }
  cache.length = kEntries;
  Compressing({{"name", "quantspec_kv"}, {"group_size", 16}, {"buffer", 4}}, host, cache).compress();
  const std::vector<int32_t> token{7};
  feed_as_anew(host, offloaded.model(), cache, token);
  EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0);
}

TEST(DeviceCodecs, LayersThatAreNotMergedStayWhereTheyAre) {
  Offloaded offloaded;
  const Prefill prompt = prefill(offloaded.model(), tiny_prompt(96), Needs{});
  const Decoded answer = decode(offloaded.model(), prompt, {{"name", "minicache"}}, 40);
  EXPECT_GT(answer.activity.entries_packed, 0);
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 0);
  EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0);
}

TEST(DeviceCodecs, DraftsReadOnePlaneAndVerificationBoth) {
  Transformer host = testing::tiny_model(1, kF32);
  Offloaded offloaded;
  const Prefill prompt = prefill(offloaded.model(), tiny_prompt(96), Needs{});
  for (const char* planes : {"both", "upper"}) {
    const json spec{{"name", "quantspec_kv"}, {"group_size", 16}, {"buffer", 4}, {"read", planes}};
    const Decoded want = decode(host, prompt, spec, 12),
                  got = decode(offloaded.model(), prompt, spec, 12, {.forced = want.tokens});
    for (size_t i = 0; i < want.logits.size(); ++i)
      EXPECT_LT(relative_error(got.logits.at(i), want.logits[i]), 20 * kRounding) << planes;
  }
  EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0);
}

TEST(DeviceCodecs, EntriesThatLieElsewhereAreAttendedToAsIfTheyHadNeverLeft) {
  Transformer host = testing::tiny_model(1, kF32);
  Offloaded offloaded;
  const Prefill prompt = prefill(offloaded.model(), tiny_prompt(300), Needs{});
  const std::string drafter = KVARENA_SOURCE_DIR "/tests/golden/specontext_eagle3";
  json spec{{"name", "specontext"}, {"tokens", 64}, {"head", testing::imported(host, "specontext", drafter)}};
  const Decoded here = decode(offloaded.model(), prompt, spec, 20);
  EXPECT_GT(here.activity.entries_skipped, 0);
  for (const bool elastic : {true, false}) {
    spec.update({{"offload", "all"}, {"elastic", elastic}});
    const Decoded away = decode(offloaded.model(), prompt, spec, 20);
    EXPECT_GT(away.activity.traffic.loaded_bytes, 0);
    EXPECT_EQ(away.logits, here.logits);
  }
  const Decoded want = decode(host, prompt, spec, 20, {.forced = here.tokens});
  for (size_t i = 0; i < want.logits.size(); ++i)
    EXPECT_LT(relative_error(here.logits.at(i), want.logits[i]), kRounding) << i;
  EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0);
}

}  // namespace
}  // namespace kvarena::device
