// Keys brought to another position.

#include "harness/engine/reuse/recovery.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/core/error.h"
#include "harness/engine/reuse/chunk_store.h"
#include "tests/harness/engine/reuse/support.h"
#include "tests/support/golden_model.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using testing::entries_of;
using testing::FullPrompt;
using testing::golden_model;
using testing::tiny_model;
using testing::tiny_prompt;

std::vector<int32_t> some_tokens(const Transformer& model, int64_t n) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>((i * 29 + 3) % model.config().vocab_size));
  return tokens;
}

/// A first layer's entries depend on their token and position alone, so those of a chunk computed alone are a full
/// prefill's, once they are turned.
void expect_fresh_first_layer(Transformer& model, double tolerance) {
  const std::vector<int32_t> tokens = some_tokens(model, 61);
  const FullPrompt full(model, tokens);
  KvCache cache = model.make_cache();
  append_recovered(model, *compute_chunk(model, std::span(tokens).first(23)), cache);
  append_recovered(model, *compute_chunk(model, std::span(tokens).subspan(23)), cache);
  ASSERT_EQ(cache.length, 61);
  for (int64_t head = 0; head < model.layer_shape(0).kv_heads; ++head) {
    const std::vector<float> turned = entries_of(cache.layers[0], head);
    const std::vector<float> fresh = entries_of(full.cache.layers[0], head);
    const int64_t half = static_cast<int64_t>(fresh.size()) / 2;
    float largest = 0;
    for (int64_t i = 0; i < half; ++i) largest = std::max(largest, std::abs(fresh[i]));
    for (int64_t i = 0; i < half; ++i) ASSERT_NEAR(turned[i], fresh[i], tolerance * largest) << "key " << i;
    const int64_t exact = 23 * model.layer_shape(0).head_dim;
    EXPECT_TRUE(std::equal(fresh.begin(), fresh.begin() + exact, turned.begin())) << "the first chunk does not move";
  }
}

TEST(Recovery, TurnedKeysAreFreshOnesUnderEveryScaling) {
  // f32: two more rotations' roundings. bf16: one more rounding to 8 bits, and the first one turned.
  for (const char* kind :
       {"llama2", "llama31", "llama_yarn", "longchat_linear", "qwen3", "gemma3", "deepseek_v2", "glm4", "smollm3"}) {
    SCOPED_TRACE(kind);
    Transformer exact = golden_model(kind).transformer({.cache = kernels::DType::f32});
    expect_fresh_first_layer(exact, 4e-6);
    Transformer rounded = golden_model(kind).transformer({.cache = kernels::DType::bf16});
    expect_fresh_first_layer(rounded, 1.0 / 128);
  }
}

TEST(Recovery, ValuesOfAMovedChunkKeepTheirBits) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(50);
  const ChunkCache chunk = compute_chunk(model, tokens);
  KvCache cache = model.make_cache();
  append_recovered(model, *chunk, cache);
  append_recovered(model, *chunk, cache);
  for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
    for (int64_t head = 0; head < model.layer_shape(0).kv_heads; ++head) {
      const std::vector<float> two = entries_of(cache.layers[layer], head);
      const std::vector<float> one = entries_of(chunk->layers[layer], head);
      const auto rows = static_cast<std::ptrdiff_t>(one.size() / 2);
      EXPECT_TRUE(std::equal(one.begin() + rows, one.end(), two.begin() + 3 * rows));
      EXPECT_TRUE(std::equal(one.begin(), one.begin() + rows, two.begin()));
      EXPECT_FALSE(std::equal(one.begin(), one.begin() + rows, two.begin() + rows));
    }
  }
}

TEST(Recovery, ByHand) {
  // One pair of channels at one radian a position: a key at position 1, moved by 2, is (cos 3, sin 3).
  const LayerShape shape{.q_heads = 1, .kv_heads = 1, .head_dim = 16, .dtype = kernels::DType::f32};
  EntrySegment segment(shape, std::make_shared<MemoryLedger>());
  std::vector<float> key(16, 0.0F);
  key[0] = std::cos(1.0F);
  key[8] = std::sin(1.0F);
  segment.append(key.data(), key.data(), 1, 16, 1);
  std::vector<float> cos(8, 1.0F);
  std::vector<float> sin(8, 0.0F);
  cos[0] = std::cos(2.0F);
  sin[0] = std::sin(2.0F);
  segment.rotate_keys(0, 1, cos, sin);
  std::vector<float> turned(16);
  segment.read(0, turned.data(), nullptr);
  EXPECT_NEAR(turned[0], std::cos(3.0), 1e-6);
  EXPECT_NEAR(turned[8], std::sin(3.0), 1e-6);
}

TEST(Recovery, RotationsThatDependOnThePromptsLengthAreRefused) {
  ModelConfig config = testing::tiny_config();
  config.rope_scaling.type = RopeScaling::Type::dynamic;
  config.rope_scaling.factor = 4;
  config.rope_scaling.original_max_position = 64;
  const Transformer model(config, testing::RandomCheckpoint(testing::llama_tensors(config), 1), {});
  EXPECT_NO_THROW(require_recoverable(model, 64));
  try {
    require_recoverable(model, 65);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    for (const char* word : {"tiny", "65 tokens", "at most 64"}) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
}

TEST(ChunkKey, TellsModelsStoredFormsAndTokensApart) {
  const Transformer a = tiny_model(1);
  const Transformer b = tiny_model(2);
  const Transformer c = tiny_model(1, {.cache = kernels::DType::f32});
  const std::vector<int32_t> tokens = tiny_prompt(40);
  const std::string key = chunk_key(a, tokens);
  EXPECT_EQ(chunk_key(tiny_model(1), tokens), key);
  EXPECT_NE(chunk_key(b, tokens), key);
  EXPECT_NE(chunk_key(c, tokens), key);
  EXPECT_NE(chunk_key(a, std::span(tokens).first(39)), key);
  EXPECT_NE(chunk_key(a, tiny_prompt(40, 8)), key);
}

}  // namespace
}  // namespace kvarena
