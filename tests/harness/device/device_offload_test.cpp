// A Transformer whose passes run on a device (emulated here), with methods on the host: against the host alone, and
// that a request's bits are its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/engine/session/selection_meter.h"
#include "tests/support/decoding.h"
#include "tests/support/differences.h"
#include "tests/support/golden_model.h"
#include "tests/support/host_families.h"
#include "tests/support/observing.h"
#include "tests/support/offloaded_model.h"
#include "tests/support/registered_method.h"

namespace kvarena::device {
namespace {

using nlohmann::json;
using testing::decode;
using testing::Decoded;
using testing::kEverything;
using testing::relative_error;
using testing::tiny_prompt;

constexpr double kRounding = 2e-3;  // of float32 sums in another order, over the largest logit

/// Wants to be asked before attention and after, of every layer in order.
class Steering final : public AttentionHooks {
 public:
  void before_pass(KvCache& /*cache*/, std::span<const int32_t> tokens) override {
    EXPECT_TRUE(calls.empty() || calls.back() == -1);
    calls = {static_cast<int64_t>(tokens.size())};
  }
  void before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) override {
    EXPECT_EQ(calls.back(), layer == 0 ? queries.q_len : 2 * layer - 1);
    EXPECT_EQ(cache.entries(0), queries.position + queries.q_len);
    calls.push_back(2 * layer);
  }
  void after_attention(int64_t layer, LayerCache& /*cache*/, const LayerQueries& /*queries*/,
                       const float* lse) override {
    EXPECT_EQ(calls.back(), 2 * layer);
    EXPECT_TRUE(std::isfinite(lse[0]));
    calls.push_back(2 * layer + 1);
  }
  void after_layer(int64_t layer, const float* /*rows*/, int64_t /*count*/, int64_t /*hidden_size*/) override {
    layers.push_back(layer);
  }
  std::vector<int64_t> calls, layers;
};

TEST(DeviceOffload, AttentionThatHooksSteerIsTheHostsWithinTheDevicesPass) {
  for (const std::string& name : testing::golden_model_names()) {
    SCOPED_TRACE(name);
    const testing::GoldenModel golden = testing::golden_model(name);
    if (testing::only_host_computes(golden.config.architecture)) continue;
    Transformer host = golden.transformer(kF32), model = golden.transformer(kF32);
    auto owned = std::make_unique<DeviceOffload>(
        DeviceModel(golden.config, golden.checkpoint(), kF32, spread_layers(golden.config.layers)), int64_t{1} << 30);
    const DeviceOffload& device = *owned;
    model.offload_to(std::move(owned));
    std::vector<int32_t> tokens;
    for (int32_t i = 3; i < 40; ++i) tokens.push_back(i);
    KvCache near = host.make_cache(), far = model.make_cache();
    for (const auto& [first, count] : {std::pair{0, 20}, {20, 16}, {36, 1}}) {
      Steering hooks;
      const std::span<const int32_t> some = std::span(tokens).subspan(first, count);
      const SequencePass pass{.tokens = some, .cache = &far, .hooks = &hooks, .logits = LogitsRows::all};
      const std::span<const float> got = model.forward({&pass, 1});
      EXPECT_LT(relative_error(got, fed(host, near, some)), 1e-4);
      EXPECT_EQ(std::ssize(hooks.calls), 1 + 2 * golden.config.layers);
      EXPECT_EQ(std::ssize(hooks.layers), golden.config.layers);
    }
    EXPECT_EQ(far.length, 37);
    EXPECT_EQ(device.tokens(), 37);
    EXPECT_EQ(device.mirrors().uploads(), 0);
  }
}

TEST(DeviceOffload, ATreesLogitsAreTheHosts) {
  Transformer host = testing::tiny_model(1, kF32);
  Offloaded offloaded;
  const std::vector<int32_t> prompt = tiny_prompt(40), tokens{5, 9, 11, 7, 3}, parents{-1, 0, 0, 2, -1};
  std::vector<std::vector<float>> logits;
  for (Transformer* model : {&host, &offloaded.model()}) {
    KvCache cache = model->make_cache();
    (void)fed(*model, cache, prompt);
    const SequencePass pass{.tokens = tokens, .cache = &cache, .logits = LogitsRows::all, .parents = parents};
    const std::span<const float> rows = model->forward({&pass, 1});
    logits.emplace_back(rows.begin(), rows.end());
  }
  EXPECT_LT(relative_error(logits[1], logits[0]), 1e-4);
  EXPECT_EQ(offloaded.device().tokens(), 45);
}

/// Requests that attend on the device and on the host, and one whose prompt is read, in the same passes.
TEST(DeviceOffload, BitsDoNotDependOnWhoElseIsInAPassWhereverThatIsComputed) {
  Offloaded offloaded;
  const Prefill prompt = prefill(offloaded.model(), tiny_prompt(90), combine(kEverything, {.window = kWholePrompt}));
  const std::vector<json> specs = {{{"name", "full"}},
                                   {{"name", "snapkv"}, {"keep", 0.5}},
                                   {{"name", "quest"}, {"keep", 0.5}},
                                   {{"name", "kivi"}, {"bits", 4}, {"group_size", 32}},
                                   {{"name", "specache"}, {"k", 8}},
                                   {{"name", "gear"}, {"buffer", 64}},
                                   {{"name", "minicache"}},
                                   {{"name", "attention_matching"}, {"keep", 0.5}},
                                   {{"name", "shadowkv"}, {"keep", 0.5}, {"outliers", 2}},
                                   {{"name", "infllm"}, {"init", 8}, {"local", 32}, {"block", 16}, {"exec", 32}}};
  std::vector<std::unique_ptr<Method>> methods;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> running;
  std::vector<testing::Logits> logits(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    methods.push_back(make_method(specs[i], "test"));
    sessions.push_back(
        testing::start_noted(offloaded.model(), prompt, *methods[i], logits[i], {.stop = {.max_new_tokens = 6}}));
    running.push_back(sessions.back().get());
  }
  run_together(offloaded.model(), running);
  for (size_t i = 0; i < specs.size(); ++i)
    EXPECT_EQ(logits[i], decode(offloaded.model(), prompt, specs[i], 6).logits) << specs[i];
}

/// Entries that a method selects are attended on the device, by lists of a kv head or of a query head.
TEST(DeviceOffload, WhoeverIsMeasuredDecodesWhatOthersDo) {
  Transformer host = testing::tiny_model(1, kF32);
  Offloaded offloaded;
  for (const json& spec : {json{{"name", "quest"}, {"tokens", 32}}, json{{"name", "ideal_topk"}, {"keep", 0.3}},
                           json{{"name", "snapkv"}, {"keep", 0.5}}}) {
    SCOPED_TRACE(spec.dump());
    std::vector<Decoded> plain;
    std::vector<std::vector<double>> rates;
    for (Transformer* model : {&offloaded.model(), &host}) {
      const Prefill prompt = prefill(*model, tiny_prompt(90), kEverything);
      SelectionMeter meter(prompt.cache);
      plain.push_back(decode(*model, prompt, spec, 12));
      const Decoded measured = decode(*model, prompt, spec, 12, {.meter = &meter});
      EXPECT_EQ(measured.logits, plain.back().logits);
      rates.push_back(meter.layer_hit_rates());
    }
    EXPECT_EQ(plain[0].tokens, plain[1].tokens);
    EXPECT_EQ(plain[0].activity.entries_skipped, plain[1].activity.entries_skipped);
    for (size_t layer = 0; layer < rates[0].size(); ++layer) EXPECT_NEAR(rates[0][layer], rates[1][layer], 1e-3);
  }
  EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0);
}

/// A packed copy is not attended to at all where all of its entries were loaded exact.
TEST(DeviceOffload, EntriesThatComeBackTakeTheirCopiesPlace) {
  Transformer host = testing::tiny_model(1, kF32);
  Offloaded offloaded;
  const json kivi{{"name", "kivi"}, {"bits", 2}, {"group_size", 16}, {"residual_length", 32}},
      turned{{"name", "quarot_kv"}, {"bits", 4}};
  const Prefill prompt = prefill(offloaded.model(), tiny_prompt(90), kEverything);
  const Decoded full = decode(offloaded.model(), prompt, {{"name", "full"}}, 12);
  for (const json& copy : {kivi, turned}) {
    for (const bool speculative : {true, false}) {
      for (const int k : {6, 1000}) {
        const json spec{
            {"name", "specache"}, {"k", k}, {"copy", copy}, {"speculative", speculative}, {"elastic", k == 6}};
        SCOPED_TRACE(spec.dump());
        const Decoded got = decode(offloaded.model(), prompt, spec, 12, {.forced = full.tokens}),
                      want = decode(host, prompt, spec, 12, {.forced = full.tokens});
        EXPECT_GT(got.activity.traffic.loaded_bytes, 0);
        double from_host = 0, from_full = 0;
        for (size_t i = 0; i < full.logits.size(); ++i) {
          from_host = std::max(from_host, relative_error(got.logits.at(i), want.logits.at(i)));
          from_full = std::max(from_full, relative_error(got.logits.at(i), full.logits[i]));
        }
        EXPECT_LT(from_host, kRounding);
        if (k == 1000) {
          EXPECT_LT(from_full, 1e-4);
        } else {
          EXPECT_GT(from_full, 1e-2);
        }
      }
    }
  }
  EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0);
}

/// Any method gives on a device what it gives on the host, within rounding: its own part is the host's anyway. Where it
/// packs entries, the last bit of a number decides now and then which code it gets: together that must cost less than
/// packing does.
class EveryMethodOnADevice : public testing::RegisteredMethod {
 protected:
  using Forced = std::optional<std::vector<int32_t>>;

  [[nodiscard]] Decoded answer(Transformer& model, const json& spec, Forced forced) const {
    const Needs needs = make_method(testing::active_settings(entry()), "test")->needs();
    const Prefill prompt = prefill(model, tiny_prompt(96), needs, kPrefillChunk, model_facts(model, {fitted_folder()}));
    const int64_t count = forced ? static_cast<int64_t>(forced->size()) : 8;
    return decode(model, prompt, spec, count, {.forced = std::move(forced)});
  }
};

/// Mean absolute difference over all rows, which are equally long.
double mean_difference(const testing::Logits& a, const testing::Logits& b) {
  double sum = 0;
  for (size_t row = 0; row < a.size(); ++row) sum += testing::mean_difference(a[row], b.at(row));
  return sum / static_cast<double>(a.size());
}

TEST_P(EveryMethodOnADevice, AnswersAsOnTheHost) {
  const json spec = testing::active_settings(entry());
  Transformer host = testing::tiny_model(1, kF32);
  Offloaded offloaded;
  const std::vector<int32_t> tokens = answer(host, spec, std::nullopt).tokens;
  const bool drafts = make_method(spec, "test")->verifier() != nullptr;
  const Forced forced = drafts ? std::nullopt : Forced(tokens);
  const Decoded want = answer(host, spec, forced), got = answer(offloaded.model(), spec, forced);
  EXPECT_GE(offloaded.device().tokens(), 96);
  const int64_t sparse = entry().family == Family::prefill ? 96 : 0;  // a prompt under a pattern is the host's
  const bool chooses =
      entry().family == Family::retrieval && make_method(spec, "test")->reach() == HookAccess::attention;
  const bool weighs = chooses || entry().info.name == "attention_matching";
  const bool ragged = entry().info.name == "leank";  // packed heads of different lengths
  const int64_t steps = weighs || ragged ? 7 : 0;    // over entries with biases or such heads: the host's
  EXPECT_EQ(offloaded.device().tokens_attended_on_host(), sparse + steps);
  EXPECT_EQ(got.failure, want.failure);
  EXPECT_EQ(got.tokens, want.tokens);
  ASSERT_EQ(got.logits.size(), want.logits.size());
  if (drafts) {
    EXPECT_EQ(got.logits, answer(offloaded.model(), {{"name", "full"}}, forced).logits);  // lossless bit for bit
  }
  double error = 0;
  for (size_t i = 0; i < want.logits.size(); ++i)
    error = std::max(error, relative_error(got.logits[i], want.logits[i]));
  if (error > kRounding && want.activity.entries_packed > 0) {
    const Decoded full = answer(host, {{"name", "full"}}, forced);
    EXPECT_LT(mean_difference(got.logits, want.logits), mean_difference(want.logits, full.logits));
    EXPECT_NEAR(static_cast<double>(got.resident_bytes), static_cast<double>(want.resident_bytes),
                .01 * static_cast<double>(want.resident_bytes));
    return;
  }
  EXPECT_LT(error, kRounding);
  EXPECT_EQ(got.resident_bytes, want.resident_bytes);
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryMethodOnADevice, ::testing::ValuesIn(testing::method_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace kvarena::device
