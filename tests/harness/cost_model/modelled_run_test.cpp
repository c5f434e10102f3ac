// The schedule on the modelled clock, and the paper's worked example (section 4.2.1).

#include "harness/cost_model/modelled_run.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/core/random.h"

namespace kvarena::cost_model {
namespace {

constexpr double giga = 1e9;

/// Mistral 24B on an RTX PRO 6000 as the paper describes it: 4 GB a request, 1 GB of it resident, x = 30. Weights of
/// 50 GB, 1.72 TB/s and an effective link of 50 GB/s are what its milliseconds imply.
ModelledSettings example(ScheduleKind kind) {
  return {.machine = {.memory_bytes = 96 * giga, .memory_bandwidth = 1720 * giga, .link_bandwidth = 50 * giga},
          .load = {.weight_bytes = 50 * giga, .cache_bytes = 4 * giga},
          .kept = 0.25,
          .requests = 10,
          .draft_length = 30,
          .output_tokens = 600,
          .kind = kind};
}

const AcceptanceCurve& acceptance() {
  static const AcceptanceCurve curve = AcceptanceCurve::independent(0.985, 200);
  return curve;
}

/// Every reload that is begun arrives in time.
struct PromptLink final : ReloadLink {
  void begin(int64_t request) override { begun.push_back(request); }
  [[nodiscard]] bool arrives_in_time(int64_t /*request*/) const override { return true; }
  std::vector<int64_t> begun;  // requests
};

TEST(ModelledRun, StaggeringComesOutAsThePaperSays) {
  const ModelledRun run = run_modelled(example(ScheduleKind::staggered), acceptance());
  double draft_only = 0, with_verify = 0;
  for (const ScheduledIteration& iteration : run.iterations) {
    EXPECT_LE(iteration.verifying, 1);
    if (iteration.drafting == 10) draft_only = std::max(draft_only, iteration.seconds);
    if (iteration.drafting == 9 && iteration.verifying == 1) with_verify = std::max(with_verify, iteration.seconds);
  }
  EXPECT_NEAR(draft_only, 35e-3, 0.5e-3);
  EXPECT_NEAR(with_verify, 37e-3, 0.5e-3);
  EXPECT_NEAR(run.peak_bytes, 64 * giga, 1e-3 * giga);
  EXPECT_EQ(run.late_verifies, 0);
  EXPECT_NEAR(4 * giga / (50 * giga), 80e-3, 1e-12);
}

TEST(ModelledRun, VerificationsLandThreeIterationsApart) {
  const ModelledRun run = run_modelled(example(ScheduleKind::staggered), acceptance());
  std::vector<size_t> landed;
  for (size_t i = 0; i < run.iterations.size(); ++i) {
    if (run.iterations[i].verifying > 0) landed.push_back(i);
  }
  ASSERT_GT(landed.size(), 40U);
  for (size_t i = 1; i < 30; ++i) EXPECT_GE(landed[i] - landed[i - 1], 3U) << i;
}

TEST(ModelledRun, LockStepWaitsForTheLinkAndNeedsAllFullCachesAtOnce) {
  const ModelledRun run = run_modelled(example(ScheduleKind::lock_step), acceptance());
  double waited = 0, longest = 0;
  for (const ScheduledIteration& iteration : run.iterations) {
    waited = iteration.drafting + iteration.verifying == 0 ? waited + iteration.seconds : 0.0;
    longest = std::max(longest, waited);
  }
  EXPECT_NEAR(longest, 800e-3, 40e-3);  // the last reload may overlap the verification's own pass
  EXPECT_NEAR(run.peak_bytes, (50 + 10 + 40) * giga, 1e-3 * giga);  // 90 GB with the compressed copies elsewhere
}

TEST(VerificationSchedule, ARequestThatCanDraftLittleIsVerifiedSoon) {
  struct : ReloadLink {
    void begin(int64_t /*request*/) override { ++begun; }
    [[nodiscard]] bool arrives_in_time(int64_t /*request*/) const override { return true; }
    int64_t begun = 0;
  } link;
  for (const auto kind : {ScheduleKind::staggered, ScheduleKind::lock_step, ScheduleKind::sequential}) {
    VerificationSchedule schedule(
        {.kind = kind, .rings = {.memory_bytes = 100}, .link_bandwidth = 10, .draft_length = 20});
    const int64_t request = schedule.add(/*full_bytes=*/1, /*compressed_bytes=*/0);
    for (const int64_t most : {3, 0, 50}) {
      schedule.limit(request, most);
      const int64_t before = link.begun;
      int64_t drafted = 0;
      for (int64_t i = 0; i < 30; ++i) {
        const IterationPlan plan = schedule.next(/*iteration_seconds=*/1, link);
        drafted += std::ssize(plan.draft);
        if (!plan.verify.empty()) schedule.verified(request, /*finished=*/false);
        schedule.advance();
        if (!plan.verify.empty()) break;
      }
      // Staggered, a reload takes the iteration before its verification.
      EXPECT_EQ(drafted,
                kind == ScheduleKind::staggered ? std::clamp<int64_t>(most, 1, 20) : std::min<int64_t>(most, 20));
      EXPECT_EQ(link.begun, before + 1);
    }
  }
}

TEST(VerificationSchedule, AReloadIsPlacedAroundALoadAtArrival) {
  struct : ReloadLink {
    void begin(int64_t /*request*/) override { begun.push_back(iteration); }
    [[nodiscard]] bool arrives_in_time(int64_t /*request*/) const override { return true; }
    int64_t iteration = 0;
    std::vector<int64_t> begun;
  } link;
  struct Iterations {
    std::vector<int64_t> loads, verifications;
  };
  const auto run = [&](ScheduleKind kind) {
    VerificationSchedule schedule(
        {.kind = kind, .rings = {.memory_bytes = 100}, .link_bandwidth = 10, .draft_length = 3});
    link.begun.clear();
    Iterations at;
    const int64_t request = schedule.add(/*full_bytes=*/20, /*compressed_bytes=*/5);  // 2 iterations of 1 s a reload
    (void)schedule.add_load(/*bytes=*/35, /*resident_bytes=*/5);                      // 4
    for (link.iteration = 0; link.iteration < 8; ++link.iteration) {
      if (link.iteration == 2) (void)schedule.add_load(15, 5);  // 2
      const IterationPlan plan = schedule.next(/*iteration_seconds=*/1, link);
      for (size_t i = 0; i < plan.loads.size(); ++i) at.loads.push_back(link.iteration);
      for (size_t i = 0; i < plan.verify.size(); ++i) at.verifications.push_back(link.iteration);
      if (!plan.verify.empty()) schedule.verified(request, /*finished=*/true);
      schedule.advance();
    }
    return at;
  };
  // The first load is in windows 0 to 3. With x = 3 the reload would be in 2 and 3; it is in 4 and 5, and the second
  // load behind it, in 6 and 7.
  const Iterations staggered = run(ScheduleKind::staggered);
  EXPECT_EQ(staggered.loads, (std::vector<int64_t>{0, 6}));
  EXPECT_EQ(link.begun, std::vector<int64_t>{4});
  EXPECT_EQ(staggered.verifications, std::vector<int64_t>{5});
  for (const auto kind : {ScheduleKind::lock_step, ScheduleKind::sequential}) {
    const Iterations other = run(kind);
    EXPECT_EQ(other.loads, (std::vector<int64_t>{0, 2}));
    EXPECT_EQ(link.begun, std::vector<int64_t>{3});
  }
}

TEST(VerificationSchedule, ALoadLongerThanTheHorizonBeginsAtOnce) {
  PromptLink link;
  VerificationSchedule schedule({.rings = {.windows = 16, .memory_bytes = 100}, .link_bandwidth = 10});
  (void)schedule.add_load(/*bytes=*/140, 0);  // 14 iterations: windows 0 to 13
  const int64_t longer = schedule.add_load(/*bytes=*/151, 0);
  const int64_t behind = schedule.add_load(/*bytes=*/10, 0);
  EXPECT_EQ(schedule.next(1, link).loads, (std::vector<int64_t>{0, longer}));
  for (int i = 0; i < 13; ++i) {
    schedule.advance();
    EXPECT_TRUE(schedule.next(1, link).loads.empty());
  }
  schedule.advance();
  EXPECT_EQ(schedule.next(1, link).loads, std::vector<int64_t>{behind});
}

TEST(VerificationSchedule, AReloadLongerThanTheHorizonTakesAllOfIt) {
  PromptLink link;
  VerificationSchedule schedule(
      {.rings = {.windows = 16, .memory_bytes = 1000}, .link_bandwidth = 10, .draft_length = 3});
  const int64_t shorter = schedule.add(/*full_bytes=*/150, /*compressed_bytes=*/5);  // 15 iterations: windows 1 to 15
  EXPECT_EQ(schedule.next(1, link).draft, std::vector<int64_t>{shorter});
  const int64_t longer = schedule.add(/*full_bytes=*/700, /*compressed_bytes=*/5);  // 70
  for (int64_t iteration = 1; iteration <= 15; ++iteration) {
    schedule.advance();
    const IterationPlan plan = schedule.next(1, link);
    EXPECT_EQ(plan.verify, iteration == 15 ? std::vector<int64_t>{shorter} : std::vector<int64_t>{}) << iteration;
  }
  schedule.verified(shorter, /*finished=*/true);
  EXPECT_EQ(link.begun, std::vector<int64_t>{shorter});
  for (int64_t iteration = 1; iteration < 16; ++iteration) {  // since the last one, where the link is free behind it
    schedule.advance();
    const IterationPlan plan = schedule.next(1, link);
    EXPECT_EQ(plan.verify, iteration == 15 ? std::vector<int64_t>{longer} : std::vector<int64_t>{}) << iteration;
  }
}

TEST(VerificationSchedule, ALoadTakesMemoryUntilItHasCome) {
  PromptLink link;
  VerificationSchedule schedule({.rings = {.memory_bytes = 40}, .link_bandwidth = 10, .draft_length = 1});
  (void)schedule.add(/*full_bytes=*/20, /*compressed_bytes=*/5);
  const int64_t load = schedule.add_load(/*bytes=*/10, /*resident_bytes=*/16);
  EXPECT_EQ(schedule.next(1, link).loads, std::vector<int64_t>{load});
  schedule.advance();
  EXPECT_TRUE(schedule.next(1, link).draft.empty());  // 5 + 16 + 20 of 40
  schedule.advance();
  schedule.loaded(load);
  EXPECT_EQ(schedule.next(1, link).draft.size(), 1U);
}

TEST(VerificationSchedule, CachesOfOthersTakeMemoryToo) {
  PromptLink link;
  VerificationSchedule schedule({.rings = {.memory_bytes = 40}, .link_bandwidth = 10, .draft_length = 1});
  (void)schedule.add(/*full_bytes=*/20, /*compressed_bytes=*/5);
  schedule.set_others(16);
  EXPECT_TRUE(schedule.next(1, link).draft.empty());  // 5 + 16 + 20 of 40
  schedule.advance();
  schedule.set_others(15);
  EXPECT_EQ(schedule.next(1, link).draft.size(), 1U);
}

TEST(VerificationSchedule, APinnedRequestIsVerifiedAfterItsDraftsWithoutAReload) {
  PromptLink link;
  VerificationSchedule schedule({.rings = {.memory_bytes = 100}, .link_bandwidth = 10, .draft_length = 5});
  const int64_t request = schedule.add(/*full_bytes=*/20, /*compressed_bytes=*/5);
  // Returns the tokens drafted before the next verification.
  const auto round = [&] {
    int64_t drafted = 0;
    while (true) {
      const IterationPlan plan = schedule.next(/*iteration_seconds=*/1, link);
      drafted += std::ssize(plan.draft);
      if (!plan.verify.empty()) schedule.verified(request, /*finished=*/false);
      schedule.advance();
      if (!plan.verify.empty()) return drafted;
    }
  };
  schedule.pin(request);
  EXPECT_EQ(round(), 5);
  schedule.limit(request, 2);
  EXPECT_EQ(round(), 2);
  EXPECT_TRUE(link.begun.empty());
  (void)schedule.next(1, link);  // a draft, cut by what follows
  schedule.unpin(request);
  schedule.advance();
  EXPECT_EQ(round(), 2);
  EXPECT_EQ(link.begun, std::vector<int64_t>{request});
  schedule.pin(request);
  schedule.stop_drafting(request);
  EXPECT_EQ(round(), 0);
  EXPECT_EQ(round(), 0);
  EXPECT_EQ(std::ssize(link.begun), 1);
}

TEST(VerificationSchedule, FullCachesStayWhereTwoOthersStillComeAndGo) {
  EXPECT_EQ(full_caches_that_stay(80, std::vector<double>(5, 20)), 2);
  EXPECT_EQ(full_caches_that_stay(79, std::vector<double>(5, 20)), 1);
  EXPECT_EQ(full_caches_that_stay(100, std::vector<double>(5, 20)), 5);         // none comes and goes
  EXPECT_EQ(full_caches_that_stay(60, std::vector<double>{10, 20, 5, 30}), 1);  // beside 20 and 30
  EXPECT_EQ(full_caches_that_stay(59, std::vector<double>{10, 20, 5, 30}), 0);
  EXPECT_EQ(full_caches_that_stay(-1, std::vector<double>{1}), 0);
}

TEST(ModelledRun, FullCachesThatStayTakeMemoryAndNoLink) {
  ModelledSettings settings = example(ScheduleKind::staggered);
  settings.resident = 5;
  const ModelledRun run = run_modelled(settings, acceptance());
  const ModelledRun all_offloaded = run_modelled(example(ScheduleKind::staggered), acceptance());
  EXPECT_EQ(run.tokens, all_offloaded.tokens);
  EXPECT_NEAR(run.link_busy_seconds / all_offloaded.link_busy_seconds, 0.5, 0.05);
  EXPECT_NEAR(run.peak_bytes, (50 + 10 + 5 * 4 + 4) * giga, 1e-3 * giga);
  EXPECT_EQ(run.late_verifies, 0);

  settings.resident = settings.requests;
  settings.machine.memory_bytes = 100 * giga;
  settings.output_tokens = 4000;  // the estimate is a steady state
  const ModelledRun resident = run_modelled(settings, acceptance());
  EXPECT_EQ(resident.link_busy_seconds, 0);
  const DecodingEstimate model =
      estimate(settings.machine, settings.load,
               {.resident = 10, .draft_length = 30, .kept = 0.25, .acceptance = acceptance().rate(30)});
  EXPECT_NEAR(resident.tokens_per_second() / model.tokens_per_second, 1, 0.1);

  settings.resident = 9;
  settings.machine.memory_bytes = 99 * giga;  // 50 + 10 + 10 * 4 = 100
  EXPECT_THROW((void)run_modelled(settings, acceptance()), UserError);
}

TEST(ModelledRun, LoadsAtArrivalShareTheLinkWithReloads) {
  ModelledSettings settings = example(ScheduleKind::staggered);
  settings.load_at_arrival = true;
  const ModelledRun run = run_modelled(settings, acceptance());
  // A load of 1 GB takes 20 ms, so one window: the first request drafts when 20 ms have gone by, then one more in each
  // iteration.
  EXPECT_NEAR(run.iterations[0].seconds, 20e-3, 1e-12);
  int64_t verifications = 0;
  std::vector<size_t> landed;
  for (size_t i = 0; i < run.iterations.size(); ++i) {
    if (i <= 10) {
      EXPECT_EQ(run.iterations[i].drafting, static_cast<int64_t>(i));
    }
    if (run.iterations[i].verifying > 0) landed.push_back(i);
    verifications += run.iterations[i].verifying;
  }
  // The first three find 31 = 1 + x, and then 34 and 37, the nearest windows of 2 + x and 3 + x that reloads leave; the
  // fourth one 28 before them.
  EXPECT_EQ((std::vector<size_t>(landed.begin(), landed.begin() + 4)), (std::vector<size_t>{25, 28, 31, 34}));
  EXPECT_EQ(run.late_verifies, 0);
  EXPECT_NEAR(run.link_busy_seconds, 10 * 20e-3 + static_cast<double>(verifications) * 80e-3, 1e-9);
  EXPECT_NEAR(run.peak_bytes, 64 * giga, 1e-3 * giga);
  EXPECT_EQ(run.tokens, run_modelled(example(ScheduleKind::staggered), acceptance()).tokens);

  settings.resident = 2;  // which bring both caches
  const ModelledRun some = run_modelled(settings, acceptance());
  EXPECT_NEAR(some.iterations[0].seconds, 100e-3, 1e-12);
  EXPECT_EQ(some.late_verifies, 0);
}

TEST(ModelledRun, StaggeredBeatsSequentialBeatsNothingGained) {
  const double staggered = run_modelled(example(ScheduleKind::staggered), acceptance()).tokens_per_second();
  const double sequential = run_modelled(example(ScheduleKind::sequential), acceptance()).tokens_per_second();
  const double lock_step = run_modelled(example(ScheduleKind::lock_step), acceptance()).tokens_per_second();
  EXPECT_GT(staggered, 1.2 * sequential);
  EXPECT_GE(sequential, lock_step);
}

TEST(ModelledRun, LongRunsApproachTheSteadyStateModel) {
  // Eqs. 5 to 11 are a steady state with exact draft lengths; the run starts, ends and places verifications around x.
  ModelledSettings settings = example(ScheduleKind::staggered);
  settings.output_tokens = 4000;
  const ModelledRun run = run_modelled(settings, acceptance());
  const DecodingEstimate model =
      estimate(settings.machine, settings.load,
               {.offloaded = 10, .draft_length = 30, .kept = 0.25, .acceptance = acceptance().rate(30)});
  EXPECT_NEAR(run.tokens_per_second() / model.tokens_per_second, 1, 0.1);
}

TEST(ModelledRun, EveryScheduleEndsWithEveryTokenInRandomSettings) {
  const uint64_t seed = 99;
  RecordProperty("seed", std::to_string(seed));
  for (uint64_t scenario = 0; scenario < 300; ++scenario) {
    const RandomStream random(seed + scenario, "settings");
    uint64_t next = 0;
    const auto draw = [&](double low, double high) { return low + (high - low) * random.uniform(next++); };
    ModelledSettings settings = example(static_cast<ScheduleKind>(random.below(3, next++)));
    settings.requests = 1 + static_cast<int64_t>(random.below(12, next++));
    settings.draft_length = 1 + static_cast<int64_t>(random.below(60, next++));
    settings.output_tokens = 1 + static_cast<int64_t>(random.below(300, next++));
    settings.machine.link_bandwidth = draw(2, 400) * giga;
    settings.kept = draw(0.05, 0.8);
    settings.seed = scenario;
    settings.load_at_arrival = random.below(2, next++) == 0;
    const ModelledRun run = run_modelled(settings, acceptance());
    EXPECT_EQ(run.tokens, settings.requests * settings.output_tokens) << scenario;
    EXPECT_LE(run.link_busy_seconds, run.seconds * (1 + 1e-9)) << scenario;
    if (settings.kind == ScheduleKind::staggered) {
      EXPECT_LE(run.peak_bytes, settings.machine.memory_bytes * (1 + 1e-9)) << scenario;
    }
  }
}

TEST(ModelledRun, WhatCannotRunIsExplained) {
  ModelledSettings settings = example(ScheduleKind::staggered);
  settings.requests = 60;
  EXPECT_THROW((void)run_modelled(settings, acceptance()), UserError);
  settings = example(ScheduleKind::staggered);
  settings.machine.link_bandwidth = giga;  // 4 s a reload, 138 iterations
  EXPECT_THROW((void)run_modelled(settings, acceptance()), UserError);
}

}  // namespace
}  // namespace kvarena::cost_model
