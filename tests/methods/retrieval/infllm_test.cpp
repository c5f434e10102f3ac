// InfLLM: every pass against its authors' code (tests/golden/retrieval_infllm.py says how it was run), what it must
// equal at its limits, and where its bytes lie.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/cache/attend_plan.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "harness/storage/hierarchy.h"
#include "kernels/rope/rope.h"
#include "tests/support/decoding.h"
#include "tests/support/random_entries.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::Decoded;
using testing::random_floats;
using testing::tiny_model;
using testing::tiny_prompt;

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::f32};
constexpr int64_t kRow = 2 * 16;
constexpr int64_t kQuery = 4 * 16;
constexpr int64_t kRowBytes = 2 * 16 * 4;

std::shared_ptr<const storage::Hierarchy> machine(storage::TierSettings tier = {}) {
  tier.link = storage::link_named("real", "test");
  return std::make_shared<const storage::Hierarchy>(std::vector{tier});
}

ModelFacts facts() {
  ModelFacts made;
  for (int c = 0; c < 8; ++c) made.rotation.inverse.push_back(std::pow(10000.0, -c / 8.0));
  made.tiers = machine();
  return made;
}

/// One layer fed as the engine does it. Queries, keys and values of n tokens, without rotation.
struct Layer {
  Layer(const json& spec, int64_t n, uint64_t seed)
      : method(make_method(spec, "test")),
        cache(1, kShape),
        q(random_floats(n * kQuery, "q", seed)),
        k(random_floats(n * kRow, "keys", seed)),
        v(random_floats(n * kRow, "values", seed)),
        prompt(n) {
    for (float& number : q) number *= 4;
    rotate(q, 4);
    rotate(k, 2);
  }
  void rotate(std::vector<float>& x, int64_t heads) const {
    const int64_t n = static_cast<int64_t>(x.size()) / heads / 16;
    std::vector<int32_t> positions(static_cast<size_t>(n));
    std::iota(positions.begin(), positions.end(), 0);
    std::vector<float> cos(static_cast<size_t>(n * 8)), sin(static_cast<size_t>(n * 8));
    kernels::rotation_tables(positions.data(), n, model.rotation.inverse.data(), 8, 1, cos.data(), sin.data());
    kernels::rotate({.x = x.data(),
                     .tokens = n,
                     .heads = heads,
                     .head_dim = 16,
                     .token_stride = heads * 16,
                     .head_stride = 16,
                     .rotary = 16,
                     .cos = cos.data(),
                     .sin = sin.data()});
  }
  /// The next `count` tokens; their output [count, 4, 16]. `positions` and `mass` tell what was attended: the view's
  /// positions and, over all entries, the sum of probabilities of each query.
  std::vector<float> pass(int64_t count) {
    LayerCache& layer = cache.layers[0];
    layer.append(&k[length * kRow], &v[length * kRow], count, kRow, length);
    LayerContext context{.layer = 0,
                         .layers = 1,
                         .cache = layer,
                         .activity = activity,
                         .prompt_tokens = prompt,
                         .model = &model,
                         .request = &cache};
    const LayerQueries queries{.q = &q[length * kQuery], .q_len = count, .q_stride = kQuery, .position = length};
    length += count;
    method->select(context, queries);
    std::vector<float> out(static_cast<size_t>(count * kQuery)), max(static_cast<size_t>(count * 4)), sum(max.size()),
        lse(max.size());
    kernels::AttentionState state{out.data(), max.data(), sum.data()};
    kernels::init_attention(state, count, 4, 16);
    attend(layer.plan(queries), state);
    kernels::finish_attention(state, count, 4, 16, lse.data());
    positions = layer.view ? layer.view->positions(0) : layer.tail().positions(0);
    if (layer.view) {
      const int64_t entries = layer.view->entries(0);
      std::vector<float> p(static_cast<size_t>(4 * entries));
      add_probabilities(layer.plan(queries), lse.data(), p.data(), entries);
      mass = std::accumulate(p.begin(), p.end(), 0.0) / static_cast<double>(4 * count);
    }
    layer.view.reset();
    method->observe(context, queries, lse.data());
    method->after_append(context);
    return out;
  }

  std::unique_ptr<Method> method;
  ModelFacts model = facts();
  KvCache cache;
  std::vector<float> q, k, v;
  int64_t prompt;
  int64_t length = 0;
  Activity activity;
  std::vector<int32_t> positions;
  double mass = 1;
};

json small(int64_t topk = 3) {
  return {{"name", "infllm"}, {"init", 4}, {"local", 24}, {"block", 8},
          {"topk", topk},     {"repr", 2}, {"exec", 16},  {"cached_blocks", topk + 1}};
}

/// Blocks that lie whole in ascending positions after the first tokens and before the tail.
std::vector<int32_t> blocks_in(const std::vector<int32_t>& positions, int64_t init, int64_t block, size_t count) {
  std::vector<int32_t> blocks;
  const auto behind_init = static_cast<size_t>(init);
  for (size_t i = behind_init; i < behind_init + count * static_cast<size_t>(block); i += static_cast<size_t>(block)) {
    blocks.push_back(static_cast<int32_t>((positions[i] - init) / block));
  }
  return blocks;
}

TEST(InfLlm, AttendsInEveryPassAsItsAuthorsDo) {
  const json golden = json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/retrieval_infllm.json"));
  for (const json& one : golden["cases"]) {
    const json& settings = one["method"];
    int64_t n = 0;
    for (const json& pass : one["passes"]) n += pass["tokens"].get<int64_t>();
    Layer layer(settings, n, one["seed"].get<uint64_t>());
    for (size_t i = 0; i < one["passes"].size(); ++i) {
      SCOPED_TRACE(fmt::format("seed {}, pass {}", one["seed"].dump(), i));
      const json& expected = one["passes"][i];
      const auto count = expected["tokens"].get<int64_t>();
      const std::vector<float> out = layer.pass(count);
      const auto blocks = expected["blocks"].get<std::vector<int32_t>>();
      ASSERT_EQ(blocks_in(layer.positions, settings["init"], settings["block"], blocks.size()), blocks);
      EXPECT_NEAR(layer.mass, 1, 1e-5) << "an entry was seen twice or not at all";
      if (!expected.contains("first")) continue;
      for (const auto& [name, row] : {std::pair{"first", int64_t{0}}, std::pair{"last", count - 1}}) {
        const auto theirs = expected[name].get<std::vector<float>>();
        for (size_t c = 0; c < theirs.size(); ++c) {
          ASSERT_NEAR(out[row * kQuery + static_cast<int64_t>(c)], theirs[c], 2e-5) << name << ", number " << c;
        }
      }
    }
  }
}

TEST(InfLlm, ATopKOfEveryBlockCoversEveryTokenOnce) {
  Layer layer(small(/*topk=*/100), 150, 4);
  for (int i = 0; i < 8; ++i) (void)layer.pass(16);
  for (int i = 0; i < 22; ++i) {
    (void)layer.pass(1);
    std::vector<int32_t> all(static_cast<size_t>(layer.length));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(layer.positions, all);
    EXPECT_NEAR(layer.mass, 1, 1e-5);
  }
  EXPECT_TRUE(layer.activity.acted());
}

TEST(InfLlm, ACopyOfTheCacheGoesOnAsTheOriginal) {
  Layer layer(small(), 160, 5);
  for (int i = 0; i < 7; ++i) (void)layer.pass(16);
  Layer twin(small(), 160, 5);
  twin.length = layer.length;
  twin.cache = layer.cache.clone();
  EXPECT_GT(twin.cache.ledger->current(Tier::host), 0);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(twin.pass(1), layer.pass(1)) << i;
}

TEST(InfLlm, BytesLieWhereTheyAreSaidToLie) {
  Layer layer(small(), 150, 6);
  for (int i = 0; i < 9; ++i) (void)layer.pass(16);
  // 144 tokens: 4 at the beginning, 24 in the window, 14 blocks of 8 of the 116 between, and 4 that wait.
  constexpr int64_t kBlocks = 14;
  EXPECT_EQ(layer.activity.traffic.offloaded_bytes, kBlocks * 8 * 2 * kRowBytes);
  EXPECT_GE(layer.cache.ledger->current(Tier::host), kBlocks * 8 * 2 * kRowBytes);
  EXPECT_EQ(layer.cache.layers[0].tail().entries(0), 24 + 4);
  EXPECT_EQ(layer.cache.layers[0].tail().position(0, 0), 4 + kBlocks * 8);
  const KvCache copy = layer.cache.clone();  // of blocks that have arrived; none is on its way
  EXPECT_EQ(copy.ledger->current(Tier::device), copy.bytes());
}

TEST(InfLlm, SizesFollowAShareOfThePrompt) {
  json spec = {{"name", "infllm"}, {"total", 0.25}, {"block", 128}, {"exec", 512}};
  Layer layer(spec, 5000, 7);
  for (int i = 0; i < 9; ++i) (void)layer.pass(512);
  (void)layer.pass(1);
  // t = 1250: init = int(26.25), topk = int(405) / 128, local = 1250 - 26 - 384.
  const auto in_tail = static_cast<size_t>(layer.cache.layers[0].tail().entries(0));
  EXPECT_LT(in_tail, 840U + 128 + 1);
  EXPECT_GE(in_tail, 840U);
  EXPECT_EQ(layer.positions.size(), 26 + 3 * 128 + in_tail);
}

// ---- In the engine --------------------------------------------------------------------------------------------------

class InfLlmSessions : public ::testing::Test {
 protected:
  std::unique_ptr<Session> start(const Prefill& prompt, const Method& method, Decoded& decoded, int64_t new_tokens) {
    return testing::start_noted(model_, prompt, method, decoded.logits, {.stop = {.max_new_tokens = new_tokens}});
  }
  Decoded run(const Prefill& prompt, const json& spec, int64_t new_tokens = 40) {
    return testing::decode(model_, prompt, spec, new_tokens);
  }

  Transformer model_ = tiny_model(1, {.weights = DType::f32, .cache = DType::f32});
};

TEST_F(InfLlmSessions, APromptAndAnswerInsideTheWindowAreFullKvBitForBit) {
  const Prefill prompt = prefill(model_, tiny_prompt(200), {});
  const Decoded full = run(prompt, {{"name", "full"}});
  json spec = small();
  spec["local"] = 240;
  const Decoded windowed = run(prompt, spec);
  EXPECT_EQ(windowed.tokens, full.tokens);
  EXPECT_EQ(windowed.logits, full.logits);
  EXPECT_FALSE(windowed.activity.acted());
}

TEST_F(InfLlmSessions, ThePromptIsComputedUnderItsOwnAttention) {
  const Prefill prompt = prefill(model_, tiny_prompt(200), {});
  const Decoded full = run(prompt, {{"name", "full"}});
  const Decoded own = run(prompt, small());
  EXPECT_NE(own.logits.front(), full.logits.front()) << "the first token comes from a prefill of its own";
  // Nobody has computed this one, and chunks of another length do not matter.
  EXPECT_EQ(run(unread_prompt(model_, tiny_prompt(200)), small()).logits, own.logits);
  EXPECT_EQ(run(prefill(model_, tiny_prompt(200), {}, 33), small()).logits, own.logits);
}

TEST_F(InfLlmSessions, ALoadThatFailsEndsItsRequestAlone) {
  const auto failing = machine({.tier = Tier::host, .fault = [](int64_t transfer) {
                                  if (transfer == 40) throw UserError("host tier: the memory is gone");
                                }});
  const auto own_facts = model_facts(model_, {}, failing);
  const Prefill prompt = prefill(model_, tiny_prompt(60), {}, kPrefillChunk, own_facts);
  const Decoded full = run(prompt, {{"name", "full"}}, 120);
  const auto method = make_method(small(), "test");
  const auto plain = make_method({{"name", "full"}}, "test");
  Decoded ignored, beside;
  auto guilty = start(prompt, *method, ignored, 120);
  const auto other = start(prompt, *plain, beside, 120);
  Session* const sessions[] = {guilty.get(), other.get()};
  run_together(model_, sessions);
  EXPECT_EQ(guilty->finish, FinishReason::failed);
  EXPECT_EQ(guilty->failure, "host tier: the memory is gone");
  EXPECT_EQ(other->tokens, full.tokens);
  guilty.reset();
  EXPECT_EQ(failing->storage(Tier::host).used(), 0);
}

TEST_F(InfLlmSessions, ATierThatIsFullRefusesThePromptWithTheReason) {
  const auto narrow = model_facts(model_, {}, machine({.tier = Tier::host, .capacity_bytes = 2000}));
  const Prefill prompt = prefill(model_, tiny_prompt(200), {}, kPrefillChunk, narrow);
  const auto method = make_method(small(), "test");
  try {
    (void)start_session(model_, prompt, *method, {.stop = {.max_new_tokens = 4}});
    FAIL() << "a full tier was not noticed";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("host tier: found"), std::string::npos) << error.what();
  }
  EXPECT_EQ(narrow->tiers->storage(Tier::host).used(), 0);
}

TEST(InfLlmSettings, SizesMustFitEachOther) {
  json spec = small();
  spec["repr"] = 9;
  spec["exec"] = 25;
  spec["cached_blocks"] = 2;
  const auto problems = check_method(spec, "methods[0]");
  ASSERT_EQ(problems.size(), 3U);
  EXPECT_NE(problems[0].find("methods[0].repr: found 9"), std::string::npos) << problems[0];
  EXPECT_NE(problems[1].find("methods[0].exec: found 25"), std::string::npos) << problems[1];
  EXPECT_NE(problems[2].find("methods[0].topk: found 3"), std::string::npos) << problems[2];
}

}  // namespace
}  // namespace kvarena
