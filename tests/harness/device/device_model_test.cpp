// The forward pass on a device (emulated here): against the host's, and that a token's bits depend on its sequence
// alone.
#include "tests/support/device_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "harness/core/random.h"
#include "tests/support/differences.h"
#include "tests/support/golden_model.h"

namespace kvarena::device {
namespace {

using kernels::DType;
using testing::mean_difference;
using testing::relative_error;
using testing::tiny_prompt;

/// Logits of all tokens fed in passes of 20, 1 and 3, by the host or a device.
std::vector<float> fed(const testing::GoldenModel& golden, const TransformerOptions& options, bool on_device) {
  std::vector<int32_t> tokens;
  const RandomStream stream(3, golden.name);
  for (uint64_t i = 0; i < 24; ++i) {
    tokens.push_back(static_cast<int32_t>(stream.below(static_cast<uint64_t>(golden.config.vocab_size), i)));
  }
  std::vector<float> all;
  const auto feed_passes = [&](const auto& feed_one) {
    size_t at = 0;
    for (const size_t count : {20, 1, 3}) {
      const std::vector<float> part = feed_one(std::span(tokens).subspan(at, count));
      all.insert(all.end(), part.begin(), part.end());
      at += count;
    }
  };
  if (on_device) {
    DeviceModel model(golden.config, golden.checkpoint(), options, spread_layers(golden.config.layers));
    DeviceCache cache = model.make_cache();
    feed_passes([&](std::span<const int32_t> part) { return feed(model, cache, part); });
  } else {
    Transformer model = golden.transformer(options);
    KvCache cache = model.make_cache();
    feed_passes([&](std::span<const int32_t> part) {
      const SequencePass pass{.tokens = part, .cache = &cache, .logits = LogitsRows::all};
      return copied(model.forward({&pass, 1}));
    });
  }
  return all;
}

constexpr std::array kFamilies = {
    "llama2",        "llama31",         "llama_biased", "llama_dynamic",    "llama_yarn",  "mistral",
    "mistral_small", "qwen2",           "qwen3",        "qwen2_sliding",    "yi",          "longchat_linear",
    "qwen3_moe",     "qwen3_moe_mixed", "deepseek_v2",  "deepseek_v2_lite", "deepseek_v3", "deepseek_v3_flat"};

TEST_F(DeviceModelTest, LogitsOfEveryFamilyAreTheHosts) {
  for (const char* name : kFamilies) {
    const testing::GoldenModel golden = testing::golden_model(name);
    for (const DType weights : {DType::f32, DType::bf16, DType::f16}) {
      const TransformerOptions options{.weights = weights, .cache = DType::f32};
      EXPECT_LT(relative_error(fed(golden, options, true), fed(golden, options, false)), 1e-3)
          << name << " weights " << kernels::name_of(weights);
    }
  }
}

/// Rounding of entries now and then depends on the last bits of a sum, and sharp attention magnifies the difference.
/// Each logit may differ by the effect of a rounding; all together by less than rounding every entry does.
TEST_F(DeviceModelTest, LogitsOverRoundedEntriesAreTheHostsButForAFewRoundings) {
  for (const char* name : kFamilies) {
    const testing::GoldenModel golden = testing::golden_model(name);
    const std::vector<float> want = fed(golden, kBf16, false);
    const TransformerOptions exact{.weights = DType::bf16, .cache = DType::f32};
    const double rounding = mean_difference(fed(golden, exact, false), want);
    const double error = mean_difference(fed(golden, kBf16, true), want);
    EXPECT_LT(error, rounding) << name;
  }
}

TEST_F(DeviceModelTest, BitsDoNotDependOnHowAPromptIsCut) {
  const std::vector<int32_t> prompt = tiny_prompt(60);
  for (const TransformerOptions& options : {kBf16, kF32}) {
    DeviceModel model = tiny(options);
    DeviceCache whole_cache = model.make_cache();
    const std::vector<float> whole = feed(model, whole_cache, prompt);
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{16, 44}, std::vector<int64_t>{7, 30, 23}, std::vector<int64_t>{55, 1, 1, 1, 1, 1}}) {
      DeviceCache cache = model.make_cache();
      std::vector<float> all;
      int64_t at = 0;
      for (const int64_t count : cuts) {
        const std::vector<float> part = feed(model, cache, std::span(prompt).subspan(at, count));
        all.insert(all.end(), part.begin(), part.end());
        at += count;
      }
      expect_same_bits(all, whole, std::to_string(cuts.size()) + " passes");
    }
  }
}

TEST_F(DeviceModelTest, BitsDoNotDependOnTheRestOfABatchOrOnRunningInAVerification) {
  DeviceModel model = tiny();
  const std::vector<int32_t> prompt = tiny_prompt(50), other = tiny_prompt(33, 8);
  DeviceCache alone = model.make_cache();
  const std::vector<float> want = feed(model, alone, prompt);

  DeviceCache first = model.make_cache(), second = model.make_cache(), third = model.make_cache(Placement::host);
  (void)feed(model, first, std::span(prompt).first(45));
  (void)feed(model, second, other);
  const std::vector<DevicePass> batch = {
      {.tokens = std::span(prompt).last(5), .cache = &first, .logits = LogitsRows::all},  // a verification run
      {.tokens = std::span(other).first(1), .cache = &second, .logits = LogitsRows::last},
      {.tokens = prompt, .cache = &third, .logits = LogitsRows::last}};
  const std::vector<float> mixed = copied(model.download(model.forward(batch)));
  ASSERT_EQ(mixed.size(), 7U * 128U);
  expect_same_bits(std::span(mixed).first(std::size_t{5} * 128), last_rows(want, 5), "verified");
  expect_same_bits(last_rows(mixed, 1), last_rows(want, 1), "prefilled beside it");

  second.truncate(33);
  const std::vector<float> again = feed(model, second, std::span(other).first(1));
  expect_same_bits(again, std::span(mixed).subspan(std::size_t{5} * 128, 128), "after taking a token back");
}

/// Rows of a tree behind `before` tokens, beside another sequence, against chains of their paths alone.
void expect_bits_of_paths(DeviceModel& model, int64_t before) {
  const std::vector<int32_t> tokens{5, 9, 11, 7, 3, 2}, parents{-1, 0, 0, 2, -1, 3};
  const std::vector<std::vector<size_t>> paths{{0}, {0, 1}, {0, 2}, {0, 2, 3}, {4}, {0, 2, 3, 5}};
  const auto vocabulary = static_cast<size_t>(model.config().vocab_size);
  DeviceCache cache = model.make_cache(), other = model.make_cache();
  if (before > 0) (void)feed(model, cache, tiny_prompt(before));
  const std::vector<DevicePass> batch = {
      {.tokens = std::span(tokens).first(2), .cache = &other},
      {.tokens = tokens, .cache = &cache, .logits = LogitsRows::all, .parents = parents}};
  const std::vector<float> got = copied(model.download(model.forward(batch)));
  for (size_t row = 0; row < tokens.size(); ++row) {
    cache.truncate(before);
    std::vector<int32_t> path;
    for (const size_t at : paths[row]) path.push_back(tokens[at]);
    const std::vector<float> want = feed(model, cache, path);
    expect_same_bits(std::span(got).subspan((1 + row) * vocabulary, vocabulary), std::span(want).last(vocabulary),
                     "row " + std::to_string(row) + " behind " + std::to_string(before));
  }
}

TEST_F(DeviceModelTest, ARowOfATreeHasTheBitsOfItsPathAlone) {
  for (const TransformerOptions& options : {kBf16, kF32}) {
    DeviceModel model = tiny(options);
    for (const int64_t before : {0, 40, 512, 530}) expect_bits_of_paths(model, before);
  }
  for (const char* family : {"qwen3_moe_mixed", "deepseek_v2"}) {
    const testing::GoldenModel golden = testing::golden_model(family);
    DeviceModel model(golden.config, golden.checkpoint(), kBf16, spread_layers(golden.config.layers));
    expect_bits_of_paths(model, 30);
  }
}

TEST_F(DeviceModelTest, RecordedStepsHaveTheBitsOfOthers) {
  DeviceModel model = tiny();
  const std::vector<int32_t> prompt = tiny_prompt(30), other = tiny_prompt(21, 8);
  std::vector<std::vector<int32_t>> generated[2];
  std::vector<std::vector<float>> logits[2];
  for (const bool recording : {false, true}) {
    model.record_steps(recording);
    DeviceCache a = model.make_cache(), b = model.make_cache();
    (void)feed(model, a, prompt);
    (void)feed(model, b, other);
    std::vector<int32_t> next{5, 6};
    for (int step = 0; step < 8; ++step) {
      const std::vector<DevicePass> batch = {{.tokens = std::span(next).first(1), .cache = &a},
                                             {.tokens = std::span(next).last(1), .cache = &b}};
      const DeviceLogits made = model.forward(batch);
      const std::vector<int32_t> best = model.largest(made);
      logits[recording].push_back(copied(model.download(made)));
      generated[recording].push_back(best);
      for (size_t i = 0; i < 2; ++i) {
        const auto row = std::span(logits[recording].back()).subspan(i * 128, 128);
        EXPECT_EQ(best[i], std::ranges::max_element(row) - row.begin());
      }
      next = best;
    }
  }
  EXPECT_EQ(generated[0], generated[1]);
  for (size_t i = 0; i < logits[0].size(); ++i)
    expect_same_bits(logits[1][i], logits[0][i], "step " + std::to_string(i));
  EXPECT_EQ(model.replayed(), 7);  // all but the first
}

/// Every other step attends to everything in other layers.
TEST_F(DeviceModelTest, RecordedStepsMayAttendToEverythingInSomeLayers) {
  DeviceModel model = tiny();
  const std::vector<int32_t> prompt = tiny_prompt(40), other = tiny_prompt(21, 8);
  const Lists lists{range(0, 30, 3), range(1, 40, 4)};
  const std::vector<bool> first{true, false, false}, last{false, false, true};
  std::vector<std::vector<float>> logits[2];
  for (const bool recording : {false, true}) {
    model.record_steps(recording);
    DeviceCache a = model.make_cache(), b = model.make_cache();
    (void)feed(model, a, prompt);
    (void)feed(model, b, other);
    for (int step = 0; step < 12; ++step) {
      const std::vector<bool>& whole = step / 3 % 2 == 0 ? first : last;
      const std::vector<DevicePass> batch = {
          {.tokens = std::span(prompt).subspan(step, 1), .cache = &a, .attended = &lists, .whole = &whole},
          {.tokens = std::span(other).subspan(step, 1), .cache = &b}};
      logits[recording].push_back(copied(model.download(model.forward(batch))));
    }
  }
  EXPECT_EQ(model.replayed(), 10);  // but where each of both came first
  for (size_t i = 0; i < logits[0].size(); ++i)
    expect_same_bits(logits[1][i], logits[0][i], "step " + std::to_string(i));

  const auto alone = [&](const Lists* attended, const std::vector<bool>* whole) {
    DeviceCache cache = model.make_cache();
    (void)feed(model, cache, prompt);
    const DevicePass pass{.tokens = std::span(prompt).first(1), .cache = &cache, .attended = attended, .whole = whole};
    return copied(model.download(model.forward({&pass, 1})));
  };
  const std::vector<bool> all(3, true), none(3, false);
  EXPECT_EQ(alone(&lists, &all), alone(nullptr, nullptr));
  EXPECT_EQ(alone(&lists, &none), alone(&lists, nullptr));
  EXPECT_EQ(alone(&lists, &first), std::vector<float>(logits[0][0].begin(), logits[0][0].begin() + 128));
  EXPECT_NE(alone(&lists, &first), alone(&lists, &last));
}

/// Prompt, steps and what they were taken back for: in the first layers only, or in a model that has no others.
TEST_F(DeviceModelTest, LeavingEarlyHasTheBitsOfAShorterModelRecordedOrNot) {
  const ModelConfig whole = testing::tiny_config();
  const testing::RandomCheckpoint checkpoint(testing::llama_tensors(whole), 1);
  const std::vector<int32_t> prompt = tiny_prompt(30);
  const auto answers = [&](DeviceModel& model, int64_t layers, Placement placement) {
    DeviceCache cache = model.make_cache(placement);
    std::vector<float> all;
    const auto run = [&](std::span<const int32_t> tokens) {
      const DevicePass pass{.tokens = tokens, .cache = &cache, .logits = LogitsRows::all};
      const std::vector<float> logits = copied(model.download(model.forward({&pass, 1}, Download::nothing, layers)));
      all.insert(all.end(), logits.begin(), logits.end());
    };
    run(prompt);
    for (int round = 0; round < 3; ++round) {
      for (const int32_t& token : std::span(prompt).subspan(3, 4)) run({&token, 1});
      cache.truncate(30);
    }
    return all;
  };
  for (const int64_t layers : {1, 2}) {
    SCOPED_TRACE(layers);
    ModelConfig shorter = whole;
    shorter.layers = layers;
    DeviceModel expected(shorter, checkpoint, kBf16), model(whole, checkpoint, kBf16);
    const std::vector<float> want = answers(expected, 0, Placement::device);
    expect_same_bits(answers(model, layers, Placement::device), want, "on the device");
    EXPECT_EQ(model.replayed(), 11);  // all steps but the first
    expect_same_bits(answers(model, layers, Placement::host), want, "over the bus");
    DeviceCache cache = model.make_cache(), other = expected.make_cache();
    const std::vector<float> all_layers = feed(model, cache, prompt);  // behind passes that left early
    EXPECT_EQ(all_layers, feed(model, cache = model.make_cache(), prompt));
    EXPECT_NE(all_layers, feed(expected, other, prompt));
  }
}

TEST_F(DeviceModelTest, ACacheOnTheHostHasTheBitsOfOneOnTheDeviceWhileItGrows) {
  DeviceModel model = tiny();
  const std::vector<int32_t> prompt = tiny_prompt(270);
  DeviceCache near = model.make_cache(), far = model.make_cache(Placement::host, 64);
  for (const auto& [at, count] : {std::pair<size_t, size_t>{0, 250}, {250, 16}, {266, 1}, {267, 3}}) {
    const std::vector<float> want = feed(model, near, std::span(prompt).subspan(at, count));
    expect_same_bits(feed(model, far, std::span(prompt).subspan(at, count)), want, "from " + std::to_string(at));
  }
  EXPECT_EQ(near.length(), 270);
  EXPECT_EQ(far.fetched_entries(), 3 * 2 * 267);  // layers, heads, entries before the last pass
  EXPECT_GT(near.capacity(), 256);
  EXPECT_EQ(far.bytes() / far.capacity(), near.bytes() / near.capacity());
}

TEST_F(DeviceModelTest, AttendingToEverythingThatWasChosenIsAttendingToEverything) {
  DeviceModel model = tiny();
  const std::vector<int32_t> prompt = tiny_prompt(80);
  DeviceCache dense = model.make_cache(), far = model.make_cache(Placement::host), near = model.make_cache();
  for (DeviceCache* cache : {&dense, &far, &near}) (void)feed(model, *cache, std::span(prompt).first(76));
  for (int32_t length = 76; length < 79; ++length) {
    const Lists all(2, range(0, length));
    const std::span<const int32_t> token = std::span(prompt).subspan(static_cast<size_t>(length), 1);
    const std::vector<float> want = feed(model, dense, token);
    expect_same_bits(feed(model, far, token, &all), want, "from the host");
    expect_same_bits(feed(model, near, token, &all), want, "by an index");
  }
}

TEST_F(DeviceModelTest, WhatIsChosenComesOverTheBusOnceAndIsAttendedAsByAnIndex) {
  DeviceModel model = tiny();
  const std::vector<int32_t> prompt = tiny_prompt(90);
  DeviceCache far = model.make_cache(Placement::host), near = model.make_cache();
  for (DeviceCache* cache : {&far, &near}) (void)feed(model, *cache, std::span(prompt).first(80));
  // Heads choose differently many; the second choice keeps some, the third also what the second pass appended.
  const std::vector<Lists> choices = {
      {range(0, 80, 3), range(10, 40)}, {range(0, 80, 6), range(12, 44)}, {range(0, 81, 5), range(30, 82)}, {{}, {81}}};
  const std::vector<size_t> fresh = {1, 2, 1, 1};
  std::vector<std::vector<int32_t>> held(2);
  size_t at = 80;
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::span<const int32_t> tokens = std::span(prompt).subspan(at, fresh[i]);
    const std::vector<float> want = feed(model, near, tokens, &choices[i]);
    expect_same_bits(feed(model, far, tokens, &choices[i]), want, "choice " + std::to_string(i));
    int64_t moved = 0;
    for (size_t h = 0; h < 2; ++h) {
      moved += std::ranges::count_if(choices[i][h],
                                     [&](int32_t p) { return std::ranges::find(held[h], p) == held[h].end(); });
      held[h] = choices[i][h];
      for (size_t j = 0; j < fresh[i]; ++j) held[h].push_back(static_cast<int32_t>(at + j));
    }
    EXPECT_EQ(far.fetched_entries(), 3 * moved) << "choice " << i;
    at += fresh[i];
  }
  // Truncated entries are not attended when their positions are filled anew.
  for (DeviceCache* cache : {&far, &near}) {
    cache->truncate(80);
    (void)feed(model, *cache, std::span(prompt).first(5));
  }
  const Lists last(2, range(70, 85));
  expect_same_bits(feed(model, far, std::span(prompt).last(1), &last),
                   feed(model, near, std::span(prompt).last(1), &last), "after taking back");
}

/// Single steps of a sequence beside another's have the bits of its prefill.
void expect_bits_of_its_own(const std::string& family) {
  const testing::GoldenModel golden = testing::golden_model(family);
  DeviceModel model(golden.config, golden.checkpoint(), kBf16, spread_layers(golden.config.layers));
  const auto vocabulary = static_cast<size_t>(golden.config.vocab_size);
  const std::vector<int32_t> prompt = range(3, 40), other = range(10, 33, 2);
  DeviceCache whole = model.make_cache(), cut = model.make_cache(), beside = model.make_cache();
  const std::vector<float> want = feed(model, whole, prompt);
  (void)feed(model, cut, std::span(prompt).first(30));
  for (size_t at = 30; at < prompt.size(); ++at) {
    const std::vector<DevicePass> batch = {{.tokens = std::span(other).subspan(at - 30, 1), .cache = &beside},
                                           {.tokens = std::span(prompt).subspan(at, 1), .cache = &cut}};
    const std::vector<float> got = copied(model.download(model.forward(batch)));
    expect_same_bits(std::span(got).last(vocabulary), std::span(want).subspan(at * vocabulary, vocabulary),
                     family + ", token " + std::to_string(at));
  }
  EXPECT_EQ(model.replayed() > 0, golden.config.expert.experts == 0);  // experts are chosen on the host
}

TEST_F(DeviceModelTest, ExpertsAndLatentsDoNotDependOnTheRestOfThePass) {
  for (const char* family : {"qwen3_moe_mixed", "deepseek_v2", "deepseek_v3", "qwen3"}) expect_bits_of_its_own(family);
}

TEST_F(DeviceModelTest, ALatentsCacheOnTheHostHasTheBitsOfOneOnTheDevice) {
  const testing::GoldenModel golden = testing::golden_model("deepseek_v2");
  DeviceModel model(golden.config, golden.checkpoint(), kBf16, spread_layers(golden.config.layers));
  DeviceCache near = model.make_cache(), far = model.make_cache(Placement::host);
  const std::vector<int32_t> prompt = range(3, 60);
  for (const auto& [at, count] : {std::pair<size_t, size_t>{0, 50}, {50, 1}, {51, 3}}) {
    const std::vector<float> want = feed(model, near, std::span(prompt).subspan(at, count));
    expect_same_bits(feed(model, far, std::span(prompt).subspan(at, count)), want, "from " + std::to_string(at));
  }
  EXPECT_EQ(far.fetched_entries(), golden.config.layers * 51);  // one latent serves all heads
}

TEST_F(DeviceModelTest, RandomWeightsGiveFiniteLogits) {
  ModelConfig config = testing::tiny_config();
  config.qkv_bias = true;
  DeviceModel model = DeviceModel::random(config, kBf16, 4);
  DeviceCache cache = model.make_cache();
  const std::vector<float> logits = feed(model, cache, tiny_prompt(5));
  EXPECT_TRUE(std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }));
  EXPECT_NE(std::ranges::max(logits), std::ranges::min(logits));
  EXPECT_GT(model.weight_bytes(), 2 * 3 * config.hidden_size * config.hidden_size);
}

TEST_F(DeviceModelTest, WhatTheDeviceDoesNotRunIsRefusedWithASentence) {
  ModelConfig odd = testing::tiny_config();
  odd.head_dim = 24;
  const std::string refused = refusal([&] { (void)DeviceModel::random(odd, kBf16, 1); });
  EXPECT_NE(refused.find("head_dim 24, expected a multiple of 16"), std::string::npos) << refused;
  const testing::GoldenModel gemma = testing::golden_model("gemma3");
  const std::string family = refusal([&] { (void)DeviceModel(gemma.config, gemma.checkpoint(), kBf16); });
  EXPECT_NE(family.find("on the device: found a gemma3_text"), std::string::npos) << family;
  const testing::GoldenModel sliding = testing::golden_model("mistral");
  DeviceModel model(sliding.config, sliding.checkpoint(), kBf16, spread_layers(sliding.config.layers));
  DeviceCache cache = model.make_cache();
  const Lists none(static_cast<size_t>(sliding.config.kv_heads));
  const std::vector<int32_t> token{1};
  const std::string said = refusal([&] { (void)feed(model, cache, token, &none); });
  EXPECT_NE(said.find("sliding window"), std::string::npos) << said;
  EXPECT_EQ(cache.length(), 0);
}

TEST_F(DeviceModelTest, RandomLatentsAndExpertsGiveFiniteLogits) {
  const testing::GoldenModel golden = testing::golden_model("deepseek_v3");
  DeviceModel model = DeviceModel::random(golden.config, kBf16, 4);
  DeviceCache cache = model.make_cache();
  const std::vector<float> logits = feed(model, cache, tiny_prompt(5));
  EXPECT_TRUE(std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }));
  EXPECT_NE(std::ranges::max(logits), std::ranges::min(logits));
}

TEST_F(DeviceModelTest, TokensAndWindowsAreCheckedBeforeAnythingChanges) {
  DeviceModel model = tiny();
  DeviceCache cache = model.make_cache();
  const std::vector<int32_t> bad{3, 128}, many(2049, 1);
  EXPECT_NE(refusal([&] { (void)feed(model, cache, bad); }).find("token id 128"), std::string::npos);
  EXPECT_NE(refusal([&] { (void)feed(model, cache, many); }).find("2049 tokens"), std::string::npos);
  EXPECT_EQ(cache.length(), 0);
}

}  // namespace
}  // namespace kvarena::device
