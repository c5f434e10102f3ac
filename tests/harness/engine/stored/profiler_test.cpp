// Profiles of real forms, and what follows when requests get less than was profiled.

#include "harness/engine/stored/profiler.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/request_bytes.h"
#include "harness/method/registry.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace kvarena::stored {
namespace {

using kvarena::testing::TemporaryFolder;
using kvarena::testing::tiny_model;
using kvarena::testing::tiny_prompt;
using nlohmann::json;

/// Share of tokens that agree.
double agreement(std::span<const int32_t> answer, std::span<const int32_t> full) {
  size_t same = 0;
  for (size_t i = 0; i < std::min(answer.size(), full.size()); ++i) same += answer[i] == full[i] ? 1 : 0;
  return full.empty() ? 1 : static_cast<double>(same) / static_cast<double>(full.size());
}

class Profiler : public ::testing::Test {
 protected:
  Profiler() : model_(tiny_model()), facts_(model_facts(model_)) {
    forms_.push_back({});
    for (const double keep : {0.9, 0.3}) {
      const json spec = {{"name", "knorm"}, {"keep", keep}};
      forms_.push_back({.label = spec.dump(), .keep = keep, .method = make_method(spec, "test")});
    }
    for (uint64_t i = 0; i < 3; ++i) {
      queries_.push_back({.tokens = tiny_prompt(static_cast<int64_t>(4 + i), 50 + i), .stop = {.max_new_tokens = 8}});
    }
  }
  std::shared_ptr<const Prefill> context(uint64_t i = 0, int64_t tokens = 90) {
    return std::make_shared<const Prefill>(prefill(model_, tiny_prompt(tokens, i), {}, kPrefillChunk, facts_));
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
  std::vector<CacheForm> forms_;
  std::vector<Query> queries_;
};

TEST_F(Profiler, AnswersAreThoseOfEachQueryByItself) {
  for (const int64_t length : {90, 1100}) {  // answers share the front of the longer one
    const auto shared = context(0, length);
    const Prefill& prompt = *shared;
    const auto together = answer_queries(model_, facts_, prompt.tokens, prompt.cache, queries_);
    ASSERT_EQ(together.size(), queries_.size());
    for (size_t i = 0; i < queries_.size(); ++i) {
      std::vector<int32_t> tokens = prompt.tokens;
      tokens.insert(tokens.end(), queries_[i].tokens.begin(), queries_[i].tokens.end());
      const Prefill whole = prefill(model_, tokens, {}, kPrefillChunk, facts_);
      const Method full;
      const auto session = start_session(model_, whole, full, {.stop = queries_[i].stop});
      Session* const one[] = {session.get()};
      run_together(model_, one);
      EXPECT_EQ(together[i], session->tokens) << "query " << i << " behind " << length;
    }
  }
}

TEST_F(Profiler, AnswersWaitForRoomForWhatTheyAdd) {
  const auto prompt = context(0, 1100);
  QueryAnswers answers(model_, facts_, prompt->tokens, prompt->cache, queries_);
  const int64_t cache = full_cache_bytes(model_, 1100), one = full_cache_bytes(model_, 512 + 6 + 8);
  EXPECT_TRUE(answers.next({.bytes = cache + one - 1}).empty());
  EXPECT_EQ(answers.next({.bytes = cache + 2 * one}).size(), 2U);
  EXPECT_EQ(answers.next({}).size(), 3U);
}

TEST_F(Profiler, QualityIsTheMeanOverQueriesOfWhatTheFormReallyAnswers) {
  const auto shared = context();
  const Prefill& prompt = *shared;
  std::vector<double> seen;
  const auto profile = profile_forms(model_, shared, forms_, queries_,
                                     [&](size_t, std::span<const int32_t> answer, std::span<const int32_t> full) {
                                       seen.push_back(agreement(answer, full));
                                       return seen.back();
                                     });
  ASSERT_EQ(profile.size(), forms_.size());
  EXPECT_EQ(profile[0].quality, 1);
  EXPECT_EQ(seen.size(), 2 * queries_.size()) << "the uncompressed form needs no judging";
  const auto sized = sized_forms(model_, prompt, forms_);
  const auto full = answer_queries(model_, facts_, prompt.tokens, prompt.cache, queries_);
  for (size_t f = 1; f < forms_.size(); ++f) {
    EXPECT_EQ(profile[f].bytes, sized[f].bytes);
    EXPECT_EQ(profile[f].method, forms_[f].label);
    Activity activity;
    const KvCache cache = compress_prompt(prompt, *forms_[f].method, activity);
    const auto answers = answer_queries(model_, facts_, prompt.tokens, cache, queries_);
    double sum = 0;
    for (size_t i = 0; i < queries_.size(); ++i) sum += agreement(answers[i], full[i]);
    EXPECT_DOUBLE_EQ(profile[f].quality, sum / static_cast<double>(queries_.size()));
  }
  EXPECT_LT(profile[2].bytes, profile[1].bytes);
  EXPECT_LT(profile[1].bytes, profile[0].bytes);
}

TEST_F(Profiler, StepsThatLeaveRoomForOthersEndWithTheSameProfile) {
  const auto prompt = context();
  const AnswerQuality quality = [](size_t, std::span<const int32_t> answer, std::span<const int32_t> full) {
    return agreement(answer, full);
  };
  const auto whole = profile_forms(model_, prompt, forms_, queries_, quality);
  for (const AnswerRoom room : {AnswerRoom{.answers = 1, .tokens = 3}, AnswerRoom{.answers = 2, .tokens = 5}}) {
    ProfileRun run(model_, prompt, forms_, queries_, quality);
    int64_t passes = 0;
    while (!run.finished()) {
      EXPECT_TRUE(run.next({.answers = 0, .tokens = 10}).empty()) << "no room";
      EXPECT_TRUE(run.next({.answers = 2, .tokens = 0}).empty());
      const std::vector<PassMember*> members = run.next(room);
      if (members.empty()) run.wait(1);
      EXPECT_LE(std::ssize(members), room.answers);
      run_pass(model_, members);
      run.passed();
      passes += members.empty() ? 0 : 1;
    }
    EXPECT_GE(passes * room.answers, 3 * 3 * 7) << "three queries of seven steps, over the full cache and two forms";
    for (size_t form = 0; form < forms_.size(); ++form) {
      EXPECT_EQ(run.profile()[form].quality, whole[form].quality) << form;
      EXPECT_EQ(run.profile()[form].bytes, whole[form].bytes) << form;
    }
  }
}

TEST_F(Profiler, MeasuresTheWayFromBytesToTheFirstToken) {
  const auto prompt = context();
  const std::vector<Query> longer = {{.tokens = tiny_prompt(400, 9), .stop = {.max_new_tokens = 1}}};
  const auto quality = [](size_t, std::span<const int32_t>, std::span<const int32_t>) { return 1.0; };
  const auto restored = profile_forms(model_, prompt, forms_, {}, nullptr);
  const auto asked = profile_forms(model_, prompt, forms_, longer, quality);
  for (size_t form = 0; form < forms_.size(); ++form) {
    EXPECT_GT(restored[form].ready_s, 0);
    EXPECT_GT(asked[form].ready_s, 2 * restored[form].ready_s) << "reading 400 tokens is part of it";
    EXPECT_GT(asked[form].restore_s, 0);
    EXPECT_LT(asked[form].restore_s, asked[form].ready_s / 2) << "restoring is the other part";
    EXPECT_EQ(asked[form].ready_bytes, 0) << "no tier holds it ready";
  }
}

TEST_F(Profiler, WithoutQueriesEveryFormIsAsGood) {
  for (const storage::Form& form : profile_forms(model_, context(), forms_, {}, nullptr)) EXPECT_EQ(form.quality, 1);
}

TEST(DriftWatch, AsksForAsManyAnswersAsItIsTold) {
  DriftWatch watch(0.3, 3);
  watch.note("a", 0.2, 0.9);
  watch.note("a", 0.2, 0.9);
  EXPECT_FALSE(watch.drifted("a")) << "two answers are no drift";
  watch.note("b", 0.9, 0.9);
  watch.note("a", 0.2, 0.9);
  EXPECT_TRUE(watch.drifted("a"));
  EXPECT_FALSE(watch.drifted("b"));
  for (int i = 0; i < 3; ++i) watch.note("a", 0.8, 0.9);
  EXPECT_FALSE(watch.drifted("a")) << "the newest count";
  for (int i = 0; i < 3; ++i) watch.note("a", 0.1, 0.9);
  watch.forget("a");
  EXPECT_FALSE(watch.drifted("a"));
}

/// A profile says that a form is as good as the full cache; requests find out that it is not. Profiled anew with their
/// queries, the policy gives the context a form that answers well again.
TEST_F(Profiler, DriftThenProfilingAnewRecoversQuality) {
  const auto evict = make_method({{"name", "evicpress"}, {"alpha", 1}}, "test");
  const TemporaryFolder scratch;
  storage::TierSettings host{.tier = Tier::host}, remote{.tier = Tier::remote};
  const auto hierarchy = std::make_shared<const storage::Hierarchy>(std::vector<storage::TierSettings>{host, remote});
  ContextLibrary library(
      model_, facts_, forms_,
      {.tiers = {{.tier = Tier::host, .books = {.name = "memory", .capacity = 1 << 20, .bandwidth = 1e6}},
                 {.tier = Tier::disk, .books = {.name = "disk", .capacity = 1 << 20, .bandwidth = 1e5}},
                 {.tier = Tier::remote, .books = {.name = "remote", .bandwidth = 1e4}}},
       .hierarchy = hierarchy,
       .folder = scratch.path() / "store"},
      *evict->placement());
  const auto prompt = context();
  std::vector<storage::Form> hopeful = sized_forms(model_, *prompt, forms_);  // all as good: the smallest wins
  library.add(
      "a", [prompt] { return prompt; }, 0, hopeful);
  EXPECT_EQ(library.store().find("a")->at.form, 2);
  const auto quality = [&](size_t, std::span<const int32_t> answer, std::span<const int32_t> full) {
    return agreement(answer, full);
  };
  const auto full = answer_queries(model_, facts_, prompt->tokens, prompt->cache, queries_);
  const auto serve = [&] {
    double sum = 0;
    for (size_t i = 0; i < queries_.size(); ++i) {
      LoadedCache loaded = library.load("a");
      const auto answers = answer_queries(model_, facts_, prompt->tokens, loaded.cache, std::span(&queries_[i], 1));
      sum += agreement(answers[0], full[i]);
    }
    return sum / static_cast<double>(queries_.size());
  };
  const double before = serve();
  DriftWatch watch(0.3, queries_.size());
  for (size_t i = 0; i < queries_.size(); ++i) watch.note("a", before, library.load("a").form.quality);
  ASSERT_TRUE(watch.drifted("a")) << "quality " << before;
  library.reprofile("a", profile_forms(model_, prompt, forms_, queries_, quality));
  library.rearrange();
  const double after = serve();
  EXPECT_GT(after, before + 0.3);
  const storage::Form now = library.load("a").form;
  EXPECT_DOUBLE_EQ(after, now.quality) << "it keeps what it promises";
}

}  // namespace
}  // namespace kvarena::stored
