// A prompt of 32k tokens on the shapes of SmolLM2-135M stays under 3 GiB, everything counted.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/engine/model_facts.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "tests/support/random_entries.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using testing::tiny_prompt;

constexpr int64_t kPrompt = 32768;
constexpr int64_t kChunk = 512;
constexpr int64_t kLimit = int64_t{3} << 30;

/// The most memory that this process ever had resident, in bytes.
int64_t peak_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

ModelConfig smollm2_135m() {
  ModelConfig config = testing::tiny_config();
  config.layers = 30;
  config.hidden_size = 576;
  config.q_heads = 9;
  config.kv_heads = 3;
  config.head_dim = 64;
  config.intermediate_size = 1536;
  config.vocab_size = 49152;
  config.max_position = kPrompt + 64;
  return config;
}

/// Attending to 32k tokens 32k times takes minutes, and memory is what is asked about: all chunks but the last are
/// appended as prefill appends them, with keys and values that were not computed. The last chunk and the tokens after
/// it are the model's own.
Prefill long_prompt(Transformer& model) {
  Prefill prompt{.tokens = tiny_prompt(kPrompt), .cache = model.make_cache(), .model = model_facts(model)};
  const LayerShape& shape = model.layer_shape(0);
  const int64_t row = shape.kv_heads * shape.head_dim;
  const std::vector<float> keys = testing::random_floats(kChunk * row, "keys");
  const std::vector<float> values = testing::random_floats(kChunk * row, "values");
  for (int64_t done = 0; done < kPrompt - kChunk; done += kChunk) {
    for (LayerCache& layer : prompt.cache.layers) layer.append(keys.data(), values.data(), kChunk, row, done);
  }
  prompt.cache.length = kPrompt - kChunk;
  const SequencePass last{.tokens = std::span(prompt.tokens).last(kChunk), .cache = &prompt.cache};
  const std::span<const float> logits = model.forward({&last, 1});
  prompt.logits.assign(logits.begin(), logits.end());
  prompt.observations.resize(prompt.cache.layers.size());
  return prompt;
}

TEST(LongPrompt, StaysUnderThreeGibibytesWithAMethodBesideTheFullCache) {
  const ModelConfig config = smollm2_135m();
  Transformer model(config, testing::RandomCheckpoint(testing::llama_tensors(config), 1), {});
  const Prefill prompt = long_prompt(model);
  EXPECT_GE(prompt.cache.bytes(), kPrompt * 30 * prompt.cache.layers[0].shape().entry_bytes());
  const auto method = make_method({{"name", "full"}}, "test");  // a clone of the whole cache
  const auto session = start_session(model, prompt, *method, {.stop = {.max_new_tokens = 2}});
  Session* const sessions[] = {session.get()};
  run_together(model, sessions);
  EXPECT_EQ(session->tokens.size(), 2U);
  EXPECT_LT(peak_resident(), kLimit);
  RecordProperty("peak_resident_bytes", std::to_string(peak_resident()));
}

}  // namespace
}  // namespace kvarena
