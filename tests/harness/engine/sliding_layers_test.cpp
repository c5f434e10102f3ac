// Methods in models with sliding-window layers: these hold their window, exact, unless a method is asked to act on
// them.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/cache/sliding_window.h"
#include "harness/core/error.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/read_by_layers.h"
#include "tests/support/decoding.h"
#include "tests/support/error_of.h"
#include "tests/support/golden_model.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::tiny_prompt;

constexpr int64_t kWindow = 40;
constexpr int64_t kPrompt = 1300;

/// The tiny model, of whose five layers the first and the third slide.
ModelConfig mixed_config() {
  ModelConfig config = testing::tiny_config();
  config.layers = 5;
  config.sliding_window = kWindow;
  config.sliding_layers = {true, false, true, false, false};
  return config;
}

/// Every kind of model with windows, with room for prompts of more chunks of attention than one.
std::vector<testing::GoldenModel> windowed_models() {
  std::vector<testing::GoldenModel> models;
  for (const char* name : {"gemma3", "gpt_oss", "mistral", "qwen2_sliding", "llama4", "phi3"}) {
    models.push_back(testing::golden_model(name));
    models.back().config.max_position = 4096;
  }
  return models;
}

/// Greedy decoding without a session, over a cache that holds everything.
testing::Decoded plainly(Transformer& model, std::span<const int32_t> prompt, int64_t new_tokens) {
  testing::Decoded decoded;
  KvCache cache = model.make_cache();
  cache.prompt_length = std::ssize(prompt);
  const SequencePass all{.tokens = prompt, .cache = &cache};
  const std::span<const float> first = model.forward({&all, 1});
  std::vector<float> logits(first.begin(), first.end());
  while (true) {
    decoded.logits.push_back(logits);
    decoded.tokens.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
    if (std::ssize(decoded.tokens) == new_tokens) return decoded;
    const SequencePass step{.tokens = std::span(decoded.tokens).last(1), .cache = &cache};
    const std::span<const float> row = model.forward({&step, 1});
    logits.assign(row.begin(), row.end());
  }
}

TEST(SlidingLayers, HoldTheirWindowAndLogitsKeepTheirBits) {
  const std::vector<int32_t> prompt = tiny_prompt(kPrompt);
  for (const testing::GoldenModel& golden : windowed_models()) {
    SCOPED_TRACE(golden.name);
    Transformer model = golden.transformer();
    const testing::Decoded wanted = plainly(model, prompt, 40);
    const auto full = make_method({{"name", "full"}}, "test");
    for (const int64_t chunk : {kPrefillChunk, int64_t{100}, kPrompt}) {
      const Prefill start = prefill(model, prompt, full->asks(), chunk);
      for (const LayerCache& layer : start.cache.layers) {
        const int64_t window = layer.shape().window;
        EXPECT_EQ(layer.entries(0), window == 0 ? kPrompt : kPrompt - 1024) << chunk;
      }
      const testing::Decoded decoded = testing::decode(model, start, *full, 40);
      EXPECT_EQ(decoded.logits, wanted.logits) << chunk;
      EXPECT_EQ(decoded.resident_bytes, start.cache.clone().bytes());
    }
  }
}

TEST(SlidingLayers, ReleaseWhileDecodingAndVerifying) {
  Transformer model = testing::tiny_model(1, {}, mixed_config());
  const std::vector<int32_t> prompt = tiny_prompt(900);
  const testing::Decoded wanted = plainly(model, prompt, 700);
  const json drafter = {{"name", "streaming_llm"}, {"keep", 0.5}};
  for (const json& spec :
       {json{{"name", "full"}}, json{{"name", "vericache"}, {"draft_length", 9}, {"drafter", drafter}},
        json{{"name", "vericache"}, {"drafter", {{"name", "h2o"}, {"keep", 0.5}}}}, json{{"name", "early_exit"}},
        json{{"name", "ngram"}}, json{{"name", "magicdec"}}}) {
    SCOPED_TRACE(spec.dump());
    const auto method = make_method(spec, "test");
    testing::Logits logits;
    const Prefill start = prefill(model, prompt, method->asks());
    const auto session = testing::start_noted(model, start, *method, logits, {.stop = {.max_new_tokens = 700}});
    Session* const one[] = {session.get()};
    run_together(model, one);
    EXPECT_EQ(session->tokens, wanted.tokens);
    EXPECT_EQ(logits, wanted.logits);
    // A layer that slides holds of 1600 tokens less than its window and a chunk, in one cache or in two.
    const bool copies = spec["name"] == "vericache" || spec["name"] == "magicdec";
    const int64_t caches = copies ? 2 : 1;
    const int64_t entry = model.layer_shape(0).entry_bytes();
    EXPECT_LT(session->held_bytes(), caches * entry * (3 * 1700 + 2 * (kWindow + 2 * kernels::kChunk)));
  }
}

TEST(SlidingLayers, ABatchAndARepeatedReadingChangeNothing) {
  Transformer model = testing::tiny_model(1, {}, mixed_config());
  const auto method = make_method({{"name", "snapkv"}, {"keep", 0.5}}, "test");
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> running;
  for (const int64_t n : {1400, 40, 700}) {
    const Prefill start = prefill(model, tiny_prompt(n), method->asks());
    sessions.push_back(start_session(model, start, *method, {.stop = {.max_new_tokens = 30}}));
    running.push_back(sessions.back().get());
  }
  run_together(model, running);
  for (size_t i = 0; const int64_t n : {1400, 40, 700}) {
    const Prefill whole = prefill(model, tiny_prompt(n), method->needs());  // nothing is released, all is observed
    const testing::Decoded alone = testing::decode(model, whole, *method, 30);
    EXPECT_EQ(alone.tokens, sessions[i]->tokens) << n;
    EXPECT_EQ(alone.resident_bytes, sessions[i]->resident_bytes) << n;
    const Prefill own = read_for(model, tiny_prompt(n), *method, 1, nullptr);
    const testing::Decoded read = testing::decode(model, own, *method, 30);
    EXPECT_EQ(read.tokens, sessions[i]->tokens) << n;
    EXPECT_EQ(read.resident_bytes, sessions[i]->resident_bytes) << n;
    ++i;
  }
}

class Choice : public ::testing::Test {
 protected:
  [[nodiscard]] KvCache compressed(const json& spec) {
    const auto method = make_method(spec, "test");
    const Prefill start = prefill(model_, tiny_prompt(kPrompt), method->asks());
    activity_ = {};
    return compress_prompt(start, *method, activity_);
  }
  static std::vector<int64_t> entries(const KvCache& cache) {
    std::vector<int64_t> list;
    for (const LayerCache& layer : cache.layers) list.push_back(layer.entries(0));
    return list;
  }

  Transformer model_ = testing::tiny_model(1, {}, mixed_config());
  Activity activity_;
};

TEST_F(Choice, MeansFullLayersUnlessSaid) {
  const int64_t window = kPrompt - 1024;  // whole chunks left
  EXPECT_EQ(entries(compressed({{"name", "snapkv"}, {"keep", 0.5}})),
            (std::vector<int64_t>{window, 650, window, 650, 650}));
  EXPECT_EQ(activity_.entries_dropped, 3 * 2 * 650);
  EXPECT_EQ(entries(compressed({{"name", "snapkv"}, {"keep", 0.5}, {"layers", "full"}})),
            (std::vector<int64_t>{window, 650, window, 650, 650}));
}

TEST_F(Choice, OfSlidingLayersBudgetsAreSharesOfTheWindow) {
  // The next token sees 39 entries of the prompt, and itself.
  EXPECT_EQ(entries(compressed({{"name", "snapkv"}, {"window", 8}, {"keep", 0.5}, {"layers", "all"}})),
            (std::vector<int64_t>{19, 650, 19, 650, 650}));
  EXPECT_EQ(entries(compressed({{"name", "snapkv"}, {"window", 8}, {"keep", 0.5}, {"layers", "sliding"}})),
            (std::vector<int64_t>{19, kPrompt, 19, kPrompt, kPrompt}));
  EXPECT_EQ(entries(compressed({{"name", "kivi"}, {"layers", "sliding"}})),
            (std::vector<int64_t>{39, kPrompt, 39, kPrompt, kPrompt}));
}

TEST_F(Choice, IsByNumberToo) {
  EXPECT_EQ(entries(compressed({{"name", "snapkv"}, {"window", 8}, {"keep", 0.5}, {"layers", {2, 4}}})),
            (std::vector<int64_t>{kPrompt - 1024, kPrompt, 19, kPrompt, 650}));
}

/// The mean budget falls from layer to layer, over the layers that are acted on.
TEST_F(Choice, RulesDivideOverTheChosenLayers) {
  const json rule = {{"name", "pyramid"}, {"beta", 4}};
  const auto pyramid = [&](const json& layers) {
    return entries(compressed({{"name", "streaming_llm"}, {"keep", 0.2}, {"budget_rule", rule}, {"layers", layers}}));
  };
  const std::vector<int64_t> mixed = pyramid("full");
  EXPECT_GT(mixed[1], mixed[3]);
  EXPECT_GT(mixed[3], mixed[4]);
  EXPECT_NEAR(static_cast<double>(mixed[1] + mixed[3] + mixed[4]) / 3, 0.2 * kPrompt, 1);
  const std::vector<int64_t> two = pyramid({1, 4});
  EXPECT_EQ(two[1], mixed[1]);
  EXPECT_EQ(two[4], mixed[4]);
  EXPECT_EQ(two[3], kPrompt);
  // Bytes are those of all layers that are acted on.
  const int64_t bytes = 3 * 2 * 100 * (2 * 32 * 2 + 4);
  EXPECT_EQ(entries(compressed({{"name", "streaming_llm"}, {"bytes", bytes}}))[3], 100);
}

TEST_F(Choice, OfNoLayerIsRefused) {
  const auto refusal = [](const ModelConfig& config, const json& layers) {
    Transformer model = testing::tiny_model(1, {}, config);
    const auto method = make_method({{"name", "snapkv"}, {"keep", 0.5}, {"layers", layers}}, "test");
    const Prefill start = prefill(model, tiny_prompt(60), method->asks());
    return testing::error_of([&] { (void)testing::decode(model, start, *method, 4); });
  };
  ModelConfig sliding = testing::tiny_config();
  sliding.sliding_window = kWindow;
  EXPECT_EQ(refusal(sliding, "full"),
            "layers: found \"full\", of which this model has none: every layer has a sliding window, expected layers "
            "that the method acts on; write \"layers\": \"all\"");
  EXPECT_EQ(
      refusal(testing::tiny_config(), "sliding"),
      "layers: found \"sliding\", of which this model has none: every layer sees everything, expected layers that "
      "the method acts on; leave \"layers\" out, or write \"all\"");
  EXPECT_EQ(refusal(testing::tiny_config(), {1, 3}),
            "layers: found [1, 3], expected numbers from 0 to 2, of the model's layers");
  EXPECT_EQ(refusal(sliding, "all"), "");
}

TEST_F(Choice, IsCheckedWhenSettingsAreRead) {
  const auto problems = [](json spec, const json& layers) {
    spec["layers"] = layers;
    return check_method(spec, "m");
  };
  const json snapkv = {{"name", "snapkv"}, {"keep", 0.5}};
  EXPECT_EQ(problems(snapkv, json::array()),
            (std::vector<std::string>{"m.layers: found no layer, expected numbers of layers from 0 on, ascending, at "
                                      "least one"}));
  EXPECT_EQ(problems(snapkv, {2, 1}).size(), 1U);
  EXPECT_EQ(problems(snapkv, {-1, 1}).size(), 1U);
  EXPECT_EQ(problems(snapkv, "some"),
            (std::vector<std::string>{
                R"(m.layers: found "some", expected one of "all", "full", "sliding", or a list of numbers)"}));
  EXPECT_EQ(problems({{"name", "quest"}, {"keep", 0.5}}, "sliding").size(), 1U);
  EXPECT_EQ(problems({{"name", "full"}}, "all").size(), 1U);  // it acts on nothing
  const json within = {{"name", "kivi"}, {"over", {{"name", "snapkv"}, {"keep", 0.5}, {"layers", "all"}}}};
  EXPECT_EQ(
      check_method(within, "m"),
      (std::vector<std::string>{"m.over.layers: found layers of a method within another, expected none: it acts on "
                                "the layers of that; write \"layers\" outside"}));
  for (const json& layers : {json("all"), json("full"), json("sliding"), json({0, 2})}) {
    EXPECT_TRUE(problems(snapkv, layers).empty()) << layers;
  }
}

/// A layer that nobody acts on is observed by nobody.
TEST_F(Choice, DecidesWhatIsObserved) {
  const auto h2o = make_method({{"name", "h2o"}, {"keep", 0.5}}, "test");
  const Prefill start = prefill(model_, tiny_prompt(kPrompt), h2o->asks());
  for (size_t layer = 0; layer < 5; ++layer) {
    EXPECT_EQ(start.observations[layer].prompt_attention.empty(), layer == 0 || layer == 2) << layer;
  }
  const auto everywhere = make_method({{"name", "h2o"}, {"keep", 0.5}, {"layers", "all"}}, "test");
  EXPECT_FALSE(prefill(model_, tiny_prompt(kPrompt), everywhere->asks()).observations[0].prompt_attention.empty());
  EXPECT_THROW((void)testing::decode(model_, start, *everywhere, 4), InternalError);
}

TEST_F(Choice, SessionsTellTheBytesOfSlidingLayers) {
  for (const json& spec : {json{{"name", "full"}}, json{{"name", "snapkv"}, {"keep", 0.25}}}) {
    const auto method = make_method(spec, "test");
    const Prefill start = prefill(model_, tiny_prompt(kPrompt), method->asks());
    const auto session = start_session(model_, start, *method, {.stop = {.max_new_tokens = 4}});
    EXPECT_EQ(session->sliding_bytes,
              2 * 2 * model_.layer_shape(0).entry_bytes() / 2 * kernels::cells_for(kPrompt - 1024) * kernels::kCell)
        << spec;
    EXPECT_LT(session->sliding_bytes, session->resident_bytes);
  }
}

}  // namespace
}  // namespace kvarena
