// Contexts that lie ready in front of memory and disk: requests begin with them without restoring anything, and they go
// down and come up with their bytes.

#include "harness/engine/stored/ready_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "harness/core/error.h"
#include "harness/engine/stored/profiler.h"
#include "harness/model/offload.h"
#include "tests/harness/engine/stored/library.h"

namespace kvarena::stored {
namespace {

using nlohmann::json;
using testing::Library;

class Ready : public Library {
 protected:
  static CacheForm held_as(const json& spec) {
    CacheForm held = spec.is_null() ? CacheForm{} : form(spec);
    held.ready = true;
    return held;
  }
  [[nodiscard]] Prefill read(uint64_t i, const CacheForm& form) {
    return prefill(model_, context(i), form.method ? form.method->needs() : Needs{}, kPrefillChunk, facts_);
  }
};

TEST_F(Ready, ABeginningSharesAllButItsNewestEntries) {
  const std::vector<int32_t> tokens = kvarena::testing::tiny_prompt(1100, 1);
  const Prefill prompt = prefill(model_, tokens, {}, kPrefillChunk, facts_);
  for (const json& spec : {json(), json{{"name", "cachegen"}}}) {
    SCOPED_TRACE(spec.dump());
    const CacheForm held = held_as(spec);
    const ReadyCache ready(model_, *facts_, held.method.get(), store_form(prompt, held));
    MemoryLedger& process = MemoryLedger::process();
    const int64_t before = process.current();
    KvCache begun = ready.begin(model_);
    EXPECT_LT(process.current() - before, ready.bytes() / 50) << "nothing is copied";
    begun.own_tails();  // what a first append takes
    EXPECT_LT(process.current() - before, ready.bytes() / 5);
    EXPECT_GE(begun.bytes(), ready.bytes() - std::ssize(store_form(prompt, held))) << "a request counts it whole";
  }
}

TEST_F(Ready, ADeviceWithoutRoomForItRefusesNobody) {
  /// A device that is full.
  struct Full final : Offload {
    std::span<const float> forward(std::span<const SequencePass> /*batch*/) override { throw UserError("full"); }
    std::unique_ptr<RowStream> rows_of(KvCache& /*cache*/, int64_t /*tokens*/, bool /*by_layer*/) override {
      throw UserError("full");
    }
    void upload(KvCache& /*cache*/, int64_t /*tokens*/) override {
      ++asked;
      throw UserError("full");
    }
    std::unique_ptr<SearchedKeys> searched_keys(int64_t /*kv_heads*/, int64_t /*head_dim*/,
                                                const LedgerPtr& /*ledger*/) override {
      throw UserError("full");
    }
    std::unique_ptr<Offload> beside(const ModelConfig& /*config*/, const Checkpoint& /*checkpoint*/,
                                    const TransformerOptions& /*options*/) override {
      throw UserError("full");
    }
    int asked = 0;
  };
  const CacheForm held = held_as(json());
  const ReadyCache ready(model_, *facts_, nullptr, store_form(read(0, held), held));
  auto owned = std::make_unique<Full>();
  const Full& device = *owned;
  model_.offload_to(std::move(owned));
  EXPECT_EQ(ready.begin(model_).length, kTokens);
  EXPECT_EQ(device.asked, 1);
}

TEST_F(Ready, AnswersTheSameFromEveryTierAndRestoresNothing) {
  for (const json& spec : {json(), json{{"name", "snapkv"}, {"keep", 0.5}}, json{{"name", "cachegen"}},
                           json{{"name", "kivi"}, {"bits", 4}, {"residual_length", 32}}}) {
    SCOPED_TRACE(spec.dump());
    const CacheForm held = held_as(spec);
    const Prefill first = read(0, held);
    const auto room = sized_forms(model_, first, {{held}}).front().ready_bytes * 3 / 2;
    const auto library = open(policy({{"name", "lru"}}), {held}, 1.1, 1.1, nullptr, room);
    uint64_t count = 0;
    while (library->store().find("0") == nullptr || library->store().find("0")->at.tier < 3) {
      library->add(fmt::format("{}", count), context(count), static_cast<double>(count));
      ASSERT_LT(++count, 40U);
    }
    double now = 100;
    for (int round = 0; round < 2; ++round) {
      for (uint64_t i = 0; i < count; ++i) {
        const std::string key = fmt::format("{}", i);
        LoadedCache loaded = library->load(key);
        if (loaded.tiers.contains(Tier::device)) {
          EXPECT_EQ(loaded.restore_s, 0);
        } else {
          EXPECT_GT(loaded.restore_s, 0);
        }
        EXPECT_EQ(answer(std::move(loaded.cache), prompt(i, i)), expected(i, held, prompt(i, i))) << key;
        library->used(key, now += 1);
        EXPECT_EQ(library->store().find(key)->at.tier, 0) << "what was used lies in front";
        loaded = library->load(key);
        EXPECT_EQ(loaded.tiers, (std::map<Tier, double>{{Tier::device, 1}}));
        EXPECT_EQ(answer(std::move(loaded.cache), prompt(i, i)), expected(i, held, prompt(i, i))) << key;
        EXPECT_EQ(library->store().get(key)->bytes, store_form(read(i, held), held)) << "the bytes at rest";
        expect_within_capacity(*library);
      }
    }
    EXPECT_EQ(library->recomputed(), 0);
    EXPECT_EQ(library->store().counts().refused_writes, 0);
  }
}

TEST_F(Ready, APolicyThatChoosesFormsKnowsWhatLiesInFront) {
  std::vector<CacheForm> forms = {held_as({}), held_as({{"name", "knorm"}, {"keep", 0.5}})};
  const Prefill original = read(0, forms[1]);
  const std::vector<storage::Form> sized = sized_forms(model_, original, forms);
  EXPECT_GT(sized[0].ready_bytes, sized[1].ready_bytes);
  // A second that restoring takes is worth more than the quality that half of the entries lose.
  const auto library =
      open(policy({{"name", "evicpress"}, {"alpha", 1}}), forms, 8, 8, nullptr, 2 * sized[1].ready_bytes);
  for (uint64_t i = 0; i < 2; ++i) {
    const auto prompt = std::make_shared<const Prefill>(read(i, forms[1]));
    std::vector<storage::Form> profile = sized_forms(model_, *prompt, forms);
    for (storage::Form& each : profile) each.ready_s = each.restore_s = 1;
    profile[1].quality = 0.9;
    library->add(
        fmt::format("{}", i), [prompt] { return prompt; }, static_cast<double>(i), profile);
  }
  library->rearrange();
  for (uint64_t i = 0; i < 2; ++i) {
    const std::string key = fmt::format("{}", i);
    EXPECT_EQ(library->store().find(key)->at, (storage::Choice{.form = 1, .tier = 0})) << key;
    EXPECT_EQ(answer(library->load(key).cache, prompt(i, i)), expected(i, forms[1], prompt(i, i)));
  }
  EXPECT_EQ(library->store().books().used(0), 2 * sized[1].ready_bytes);
}

TEST_F(Ready, AProfileMeasuresWhatATierOfThemHolds) {
  const CacheForm forms[] = {held_as({}), held_as({{"name", "cachegen"}})};
  const auto prompt = std::make_shared<const Prefill>(read(0, forms[0]));
  const std::vector<storage::Form> profile = profile_forms(model_, prompt, forms, {}, nullptr);
  const std::vector<storage::Form> sized = sized_forms(model_, *prompt, forms);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(profile[i].ready_bytes, sized[i].ready_bytes);
    EXPECT_EQ(profile[i].bytes, sized[i].bytes);
    EXPECT_GT(profile[i].restore_s, 0);
    EXPECT_LE(profile[i].restore_s, profile[i].ready_s);
  }
  EXPECT_LT(profile[1].bytes, profile[0].bytes);
  EXPECT_EQ(profile[1].ready_bytes, profile[0].ready_bytes + profile[1].bytes) << "its stream lies beside";
}

}  // namespace
}  // namespace kvarena::stored
