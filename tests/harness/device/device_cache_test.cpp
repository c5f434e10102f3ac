// Caches that come to the device from the host, whole or as methods left them, and those that it refuses.
#include <gtest/gtest.h>

#include "harness/cache/quantized_segment.h"
#include "harness/model/attention_projections.h"
#include "tests/support/device_model.h"
#include "tests/support/differences.h"
#include "tests/support/golden_model.h"

namespace kvarena::device {
namespace {

using kernels::DType;
using testing::RandomCheckpoint;
using testing::relative_error;
using testing::tiny_prompt;

Transformer tiny_host(const TransformerOptions& options) {
  const ModelConfig config = testing::tiny_config();
  return {config, RandomCheckpoint(testing::llama_tensors(config), 1), options};
}

/// A prompt's cache on the host.
KvCache prefilled(Transformer& model, std::span<const int32_t> prompt) {
  KvCache cache = model.make_cache();
  const SequencePass pass{.tokens = prompt, .cache = &cache, .logits = LogitsRows::none};
  (void)model.forward({&pass, 1});
  return cache;
}

/// Leaves differently many entries in the heads of each layer, and in the middle layer all of them.
void drop_some(KvCache& cache) {
  const auto n = static_cast<int32_t>(cache.length);
  cache.layers[0].tail().keep(std::vector<std::vector<int32_t>>{range(0, n, 3), range(n - 9, n)});
  cache.layers[2].tail().keep(std::vector<std::vector<int32_t>>{range(1, n, 2), range(0, n, 5)});
}

TEST_F(DeviceModelTest, WhatIsLeftOfAPromptDecodesAsOnTheHost) {
  const std::vector<int32_t> prompt = tiny_prompt(70);
  for (const DType weights : {DType::f32, DType::bf16}) {
    const TransformerOptions options{.weights = weights, .cache = DType::f32};
    Transformer host = tiny_host(options);
    DeviceModel model = tiny(options);
    KvCache left = prefilled(host, std::span(prompt).first(60));
    drop_some(left);
    DeviceCache cache = model.to_device(left, 10);
    for (size_t at = 60; at < prompt.size(); at += 2) {
      const std::span<const int32_t> tokens = std::span(prompt).subspan(at, 2);
      const SequencePass pass{.tokens = tokens, .cache = &left, .logits = LogitsRows::all};
      EXPECT_LT(relative_error(feed(model, cache, tokens), host.forward({&pass, 1})), 1e-3) << "token " << at;
    }
    EXPECT_EQ(cache.entries(0, 0), left.layers[0].entries(0));
    EXPECT_EQ(cache.entries(2, 1), left.layers[2].entries(1));
  }
}

TEST_F(DeviceModelTest, BitsOverWhatIsLeftDependOnTheSequenceAlone) {
  Transformer host = tiny_host(kBf16);
  DeviceModel model = tiny();
  const std::vector<int32_t> prompt = tiny_prompt(275), other = tiny_prompt(33, 8);
  KvCache left = prefilled(host, std::span(prompt).first(250));
  drop_some(left);
  model.record_steps(false);
  DeviceCache grown_capacity = model.to_device(left, 512);
  const std::vector<float> want = feed(model, grown_capacity, std::span(prompt).subspan(250));

  model.record_steps(true);
  DeviceCache tight = model.to_device(left), beside = model.make_cache();  // one grows on the way
  EXPECT_LT(tight.bytes(), 2 * model.make_cache(Placement::device, 256).bytes() / 3);
  (void)feed(model, beside, other);
  for (size_t at = 250; at < prompt.size(); ++at) {
    const std::vector<DevicePass> batch = {{.tokens = std::span(prompt).subspan(at, 1), .cache = &tight},
                                           {.tokens = std::span(other).first(1), .cache = &beside}};
    const std::vector<float> got = copied(model.download(model.forward(batch)));
    expect_same_bits(std::span(got).first(128), std::span(want).subspan((at - 250) * 128, 128),
                     "token " + std::to_string(at));
  }
  EXPECT_GT(model.replayed(), 20);
  EXPECT_GT(tight.capacity(), 256);

  tight.truncate(260);  // what came after the prompt may be taken back
  expect_same_bits(feed(model, tight, std::span(prompt).subspan(260)), last_rows(want, 15), "taken back");
  EXPECT_THROW(tight.truncate(249), InternalError);
}

/// The host's cache of some random tokens.
KvCache filled(const ModelConfig& config, DType dtype, int64_t tokens) {
  std::vector<LayerShape> shapes;
  for (int64_t layer = 0; layer < config.layers; ++layer) shapes.push_back(cache_shape(config, layer, dtype));
  KvCache cache(shapes);
  const int64_t width = shapes.front().kv_heads * shapes.front().head_dim;
  const std::vector<float> rows(static_cast<size_t>(tokens * width), 0.5F);
  for (LayerCache& layer : cache.layers) layer.append(rows.data(), rows.data(), tokens, width, 0);
  cache.length = tokens;
  return cache;
}

TEST_F(DeviceModelTest, CachesThatTheDeviceCannotHoldAreRefusedWithASentence) {
  const DeviceModel model = tiny();
  const ModelConfig config = testing::tiny_config();
  const KvCache wide = filled(config, DType::f32, 40);
  EXPECT_NE(refusal([&] { (void)model.to_device(wide); }).find("entries in f32"), std::string::npos);

  const testing::GoldenModel sliding = testing::golden_model("mistral");
  const DeviceModel narrow(sliding.config, sliding.checkpoint(), kBf16, spread_layers(sliding.config.layers));
  KvCache packed = filled(sliding.config, DType::bf16, 40);
  LayerCache& layer = packed.layers[0];
  const kernels::QuantFormat format{.bits = 4, .group_size = 16, .token_groups = true};
  const QuantizedFormat formats{.keys = format, .values = format};
  layer.insert_packed(std::make_unique<QuantizedSegment>(layer.shape(), formats, layer.ledger()));
  EXPECT_NE(refusal([&] { (void)narrow.to_device(packed); }).find("packed entries under a sliding window"),
            std::string::npos);

  KvCache some = filled(sliding.config, DType::bf16, 40);
  (void)narrow.to_device(some);
  some.layers[0].tail().keep(Lists(static_cast<size_t>(sliding.config.kv_heads), range(0, 40, 2)));
  const std::string said = refusal([&] { (void)narrow.to_device(some); });
  EXPECT_NE(said.find("20 entries of 40 tokens under a sliding window"), std::string::npos) << said;
}

TEST_F(DeviceModelTest, PositionsAreNotChosenOfACacheFromWhichEntriesWereDropped) {
  DeviceModel model = tiny();
  KvCache some = filled(testing::tiny_config(), DType::bf16, 40);
  some.layers[0].tail().keep(Lists(2, range(0, 40, 2)));
  DeviceCache cache = model.to_device(some);
  const Lists none(2);
  const std::vector<int32_t> token{1};
  const std::string said = refusal([&] { (void)feed(model, cache, token, &none); });
  EXPECT_NE(said.find("entries were dropped"), std::string::npos) << said;
  EXPECT_EQ(cache.length(), 40);
}

}  // namespace
}  // namespace kvarena::device
