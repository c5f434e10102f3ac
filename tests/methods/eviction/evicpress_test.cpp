// EvicPress against the paper's worked numbers, the exact optimum and fixed compression. That is its restatement
// (arXiv:2512.14946, sections 4.2 and 4.4); there is no public code.

#include "harness/storage/placement/exact.h"
#include "tests/harness/storage/placement/random_contexts.h"
#include "tests/methods/eviction/plain_tiers.h"

namespace kvarena::storage {
namespace {

using nlohmann::json;
using testing::named;

constexpr double giga = 1e9;

/// Figure 2: 4 GB that lose nothing down to 5%, and 8 GB that any compression halves.
std::vector<Context> figure_2() {
  return {{.id = 1,
           .forms = {{.bytes = 4'000'000'000},
                     {.method = "m", .keep = 0.5, .bytes = 2'000'000'000},
                     {.method = "m", .keep = 0.05, .bytes = 200'000'000}}},
          {.id = 2,
           .forms = {{.bytes = 8'000'000'000},
                     {.method = "m", .keep = 0.5, .bytes = 4'000'000'000, .quality = 0.5},
                     {.method = "m", .keep = 0.05, .bytes = 400'000'000, .quality = 0.5}}}};
}

std::vector<StorageTier> figure_2_tiers() {
  return {{.name = "fast", .capacity = 8'000'000'000, .bandwidth = 20 * giga}, {.name = "slow", .bandwidth = 2 * giga}};
}

TEST(EvicPress, ComesOutAsFigure2) {
  const auto policy = named({{"name", "evicpress"}, {"alpha", 1}});
  const auto tiers = figure_2_tiers();
  std::vector<Context> contexts = figure_2();
  for (Context& context : contexts) context.at = policy->placement()->first(context, tiers);
  EXPECT_EQ(contexts[0].at, (Choice{.form = 2, .tier = 0}));
  EXPECT_EQ(contexts[1].at, (Choice{.form = 0, .tier = 0}));
  // 0.2 + 8 GB do not fit. What each way out loses:
  const auto drop = [&](size_t i, Choice to) {
    return utility(contexts[i], contexts[i].at, tiers, 1) - utility(contexts[i], to, tiers, 1);
  };
  EXPECT_NEAR(drop(0, {.form = 2, .tier = 1}), 0.09, 1e-12);
  EXPECT_NEAR(drop(1, {.form = 2, .tier = 0}), 0.12, 1e-12);
  EXPECT_NEAR(drop(1, {.form = 1, .tier = 0}), 0.30, 1e-12);
  EXPECT_NEAR(drop(1, {.form = 0, .tier = 1}), 3.6, 1e-12);

  settle(*policy->placement(), tiers, contexts);
  EXPECT_EQ(contexts[0].at, (Choice{.form = 2, .tier = 1}));
  EXPECT_EQ(contexts[1].at, (Choice{.form = 0, .tier = 0}));
  double seconds = 0;
  for (const Context& context : contexts) {
    seconds += first_token_seconds(context.form(context.at), tiers[static_cast<size_t>(context.at.tier)]);
    EXPECT_EQ(context.form(context.at).quality, 1);
  }
  EXPECT_NEAR(seconds, 0.5, 1e-12);

  // And the figure's two other schemes: both halved in fast memory, and the smaller one moved away whole.
  EXPECT_NEAR(first_token_seconds(contexts[0].forms[1], tiers[0]) + first_token_seconds(contexts[1].forms[1], tiers[0]),
              0.3, 1e-12);
  EXPECT_NEAR(first_token_seconds(contexts[0].forms[0], tiers[1]) + first_token_seconds(contexts[1].forms[0], tiers[0]),
              2.4, 1e-12);
}

TEST(EvicPress, UtilityOfSection42) {
  // TTFT of 0.05 s from quality alone: the paper prints .607 and .621 from inputs that it rounds to .65 and .67.
  const std::vector<StorageTier> tier{{.name = "host", .bandwidth = 1}};
  const auto worth = [&](double quality, double seconds, double alpha) {
    const Context context{.forms = {{.quality = quality, .ready_s = seconds}}};
    return utility(context, {}, tier, alpha);
  };
  EXPECT_NEAR(worth(0.65, 0.05, 1), 0.60, 1e-12);
  EXPECT_NEAR(worth(0.67, 0.05, 1), 0.62, 1e-12);
  // Quality .82 in .20 s against .92 in .24 s turns at alpha = .04 / .10 (the paper says 0.3).
  EXPECT_GT(worth(0.82, 0.20, 0.39), worth(0.92, 0.24, 0.39));
  EXPECT_LT(worth(0.82, 0.20, 0.41), worth(0.92, 0.24, 0.41));
}

TEST(EvicPress, WithUnlimitedFastMemoryNothingMoves) {
  const auto policy = named({{"name", "evicpress"}});
  std::vector<StorageTier> tiers = figure_2_tiers();
  tiers[0].capacity = 1'000'000'000'000;
  TieredContexts books(tiers, *policy->placement());
  for (Context& context : figure_2()) {
    EXPECT_EQ(books.store(context).size(), 1U);
  }
  EXPECT_TRUE(books.rearrange().empty());
}

TEST(EvicPress, WithoutOriginalsAFormIsOnlyCompressedFurther) {
  const auto policy = named({{"name", "evicpress"}, {"originals", false}});
  Context context{.id = 0,
                  .forms = {{.bytes = 100},
                            {.method = "a", .keep = 0.5, .bytes = 50, .quality = 0.9},
                            {.method = "a", .keep = 0.2, .bytes = 20, .quality = 0.1},
                            {.method = "b", .keep = 0.2, .bytes = 20, .quality = 0.8}},
                  .at = {.form = 1}};
  const std::vector<StorageTier> tiers{{.name = "host", .capacity = 30, .bandwidth = 1e12},
                                       {.name = "remote", .bandwidth = 10}};
  settle(*policy->placement(), tiers, {&context, 1});
  EXPECT_EQ(context.at, (Choice{.form = 2, .tier = 0}));  // never method b, however good
}

TEST(EvicPress, CountsRestoringAndReadingTheQuestion) {
  // Half as many bytes, and as good an answer, that take a second longer until the first token.
  const auto policy = named({{"name", "evicpress"}});
  const std::vector<StorageTier> tiers{{.name = "host", .bandwidth = 100}};
  Context context{.forms = {{.bytes = 100, .ready_s = 0.1}, {.method = "a", .keep = 0.5, .bytes = 50, .ready_s = 1.1}}};
  EXPECT_EQ(policy->placement()->first(context, tiers).form, 0);
  EXPECT_DOUBLE_EQ(first_token_seconds(context.forms[1], tiers[0]), 1.6);
  context.forms[1].ready_s = 0.5;
  EXPECT_EQ(policy->placement()->first(context, tiers).form, 1);
}

TEST(EvicPress, PlacesAnewWhenFrequenciesHaveMoved) {
  const std::vector<StorageTier> tiers{{.name = "host", .capacity = 10, .bandwidth = 10},
                                       {.name = "remote", .bandwidth = 1}};
  for (const int64_t after : {0, 3}) {
    const auto policy = named({{"name", "evicpress"}, {"rearrange_after", after}});
    TieredContexts books(tiers, *policy->placement());
    (void)books.store({.id = 0, .forms = {{.bytes = 10}}, .accesses = 2});
    (void)books.store({.id = 1, .forms = {{.bytes = 10}}});
    ASSERT_EQ(books.find(0)->at.tier, 0);
    for (int read = 0; read < 2; ++read) EXPECT_TRUE(books.access(1, read).empty());
    EXPECT_EQ(books.access(1, 2).empty(), after == 0) << "four uses against two";
    EXPECT_EQ(books.find(1)->at.tier, after == 0 ? 1 : 0);
  }
}

struct Instance {
  std::vector<StorageTier> tiers;
  std::vector<Context> contexts;
  double optimum = 0;
};

/// Random problems of 4 to 8 contexts with 16 forms on three tiers, solved exactly.
std::vector<Instance> instances(double alpha) {
  std::vector<Instance> all;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const RandomStream random(seed, "greedy gap");
    Instance& instance = all.emplace_back();
    const auto n = static_cast<int64_t>(4 + random.below(5, 99'000));
    for (int64_t id = 0; id < n; ++id) {
      instance.contexts.push_back(testing::random_context(id, random, 3, {0.9, 0.7, 0.5, 0.3, 0.1}));
    }
    instance.tiers = testing::three_tiers(testing::total_bytes(instance.contexts), 0.1 + 0.4 * random.uniform(99'001),
                                          0.1 + 0.4 * random.uniform(99'002));
    const std::vector<Choice> best = best_placement(instance.contexts, instance.tiers, alpha);
    for (size_t i = 0; i < best.size(); ++i) instance.contexts[i].at = best[i];
    instance.optimum = total_utility(instance.contexts, instance.tiers, alpha);
  }
  return all;
}

/// Utility that the greedy loses against the optimum, as a share of it, ascending.
std::vector<double> greedy_gaps(std::vector<Instance> instances, const json& spec, double alpha) {
  const auto policy = named(spec);
  std::vector<double> gaps;
  for (Instance& instance : instances) {
    place_anew(*policy->placement(), instance.tiers, instance.contexts);
    const auto used = bytes_per_tier(instance.contexts, instance.tiers);
    for (size_t t = 0; t < used.size(); ++t) EXPECT_LE(used[t], instance.tiers[t].capacity);
    const double greedy = total_utility(instance.contexts, instance.tiers, alpha);
    EXPECT_LE(greedy, instance.optimum + 1e-9 * std::abs(instance.optimum));
    gaps.push_back((instance.optimum - greedy) / std::abs(instance.optimum));
  }
  std::ranges::sort(gaps);
  return gaps;
}

/// By loss per freed byte, and with the room that is left used again, the greedy is within 5% of the optimum on every
/// problem. As the paper has it, it is not: the step of the least loss may free little and be followed by many, and the
/// last one may free far more than was needed.
TEST(EvicPress, GreedyIsNearTheOptimum) {
  for (const double alpha : {1.0, 4.0}) {
    const std::vector<Instance> problems = instances(alpha);
    for (const bool refill : {false, true}) {
      for (const char* key : {"drop", "drop_per_byte"}) {
        const json spec = {{"name", "evicpress"}, {"alpha", alpha}, {"key", key}, {"refill", refill}};
        const auto gaps = greedy_gaps(problems, spec, alpha);
        const auto within = std::ranges::count_if(gaps, [](double gap) { return gap <= 0.05; });
        fmt::print("alpha {}, {}{}: median {:.2f}%, p90 {:.2f}%, p99 {:.2f}%, largest {:.2f}%, {} of 200 within 5%\n",
                   alpha, key, refill ? ", refill" : "", 100 * gaps[100], 100 * gaps[180], 100 * gaps[198],
                   100 * gaps.back(), within);
        EXPECT_LE(gaps[100], 0.02);
        EXPECT_GE(within, 170);
        if (refill && std::string(key) == "drop_per_byte") {
          EXPECT_LE(gaps.back(), 0.05);
        }
      }
    }
  }
}

/// Mean cost and quality of a trace of reads, and the tiers on which reads found their context.
struct TraceOutcome {
  double seconds = 0;
  double quality = 0;
  std::vector<double> share;  // share of reads, by tier
};

/// Stores all contexts, then reads them by a Zipf law; the policy may place anew every 200 reads.
TraceOutcome run_trace(const Policy& policy, const std::vector<Context>& contexts,
                       const std::vector<StorageTier>& tiers) {
  constexpr int64_t kReads = 2000;
  TieredContexts books(tiers, policy);
  double now = 0;
  for (Context context : contexts) {
    context.accesses = 1;
    context.stored_at = context.last_access = now += 1;
    (void)books.store(std::move(context));
  }
  std::vector<double> weights;
  double total = 0;
  for (size_t i = 0; i < contexts.size(); ++i) weights.push_back(total += 1.0 / static_cast<double>(i + 1));
  const RandomStream random(11, "zipf reads");
  TraceOutcome outcome{.share = std::vector<double>(tiers.size(), 0)};
  for (int64_t read = 0; read < kReads; ++read) {
    const double u = total * random.uniform(static_cast<uint64_t>(read));
    const auto id = std::ranges::upper_bound(weights, u) - weights.begin();
    const Context& context = *books.find(id);
    const Form& form = context.form(context.at);
    const auto tier = static_cast<size_t>(context.at.tier);
    outcome.seconds += first_token_seconds(form, tiers[tier]) / kReads;
    outcome.quality += form.quality / kReads;
    outcome.share[tier] += 1.0 / kReads;
    (void)books.access(id, now += 1);
    if (read % 200 == 199) (void)books.rearrange();
  }
  return outcome;
}

/// Against LRU with every context compressed by one method at one ratio: at no less quality, EvicPress takes less time.
TEST(EvicPress, TakesLessTimeThanFixedCompressionAtEqualQuality) {
  const RandomStream random(2, "trace contexts");
  std::vector<Context> contexts;
  for (int64_t id = 0; id < 40; ++id) {
    contexts.push_back(testing::random_context(id, random, 3, {0.9, 0.7, 0.5, 0.3, 0.1}));
  }
  const auto tiers = testing::three_tiers(testing::total_bytes(contexts), 0.1, 0.3);
  std::vector<TraceOutcome> ours;
  for (const double alpha : {0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 4000.0}) {
    const auto policy = named({{"name", "evicpress"}, {"alpha", alpha}});
    const TraceOutcome& outcome = ours.emplace_back(run_trace(*policy->placement(), contexts, tiers));
    fmt::print("evicpress alpha {:5}: quality {:.3f}, {:.3f} s, {:.0f}% {:.0f}% {:.0f}% of reads by tier\n", alpha,
               outcome.quality, outcome.seconds, 100 * outcome.share[0], 100 * outcome.share[1],
               100 * outcome.share[2]);
  }
  const auto lru = named({{"name", "lru"}});
  for (size_t form = 0; form < contexts.front().forms.size(); ++form) {
    std::vector<Context> fixed = contexts;
    for (Context& context : fixed) context.forms = {context.forms[form]};
    const TraceOutcome outcome = run_trace(*lru->placement(), fixed, tiers);
    double best = 1e300;
    for (const TraceOutcome& candidate : ours) {
      if (candidate.quality >= outcome.quality - 1e-9) best = std::min(best, candidate.seconds);
    }
    fmt::print("lru, {:2} keep {}: quality {:.3f}, {:.3f} s, {:.0f}% of reads from the fastest; evicpress {:.3f} s\n",
               contexts.front().forms[form].method, contexts.front().forms[form].keep, outcome.quality, outcome.seconds,
               100 * outcome.share[0], best);
    if (outcome.share[0] < 0.99) {
      EXPECT_LT(best, 0.9 * outcome.seconds);
    } else {
      EXPECT_LE(best, outcome.seconds * (1 + 1e-9));  // all compressed so far that nothing is left to decide
    }
  }
}

/// Figure 10: what queries ask has changed, the old profile is wrong, and a new one with a new arrangement brings back
/// what can be brought back.
TEST(EvicPress, ANewProfileRecoversWhatDriftTook) {
  const RandomStream random(2, "trace contexts");
  std::vector<Context> contexts, drifted;
  for (int64_t id = 0; id < 40; ++id) {
    contexts.push_back(testing::random_context(id, random, 3, {0.9, 0.7, 0.5, 0.3, 0.1}));
    drifted.push_back(contexts.back());
    const Context other = testing::random_context(id + 40, random, 3, {0.9, 0.7, 0.5, 0.3, 0.1});
    for (size_t form = 0; form < other.forms.size(); ++form) {
      drifted.back().forms[form].quality = other.forms[form].quality;
    }
  }
  const auto policy = named({{"name", "evicpress"}, {"alpha", 2}});
  const auto tiers = testing::three_tiers(testing::total_bytes(contexts), 0.1, 0.3);
  TieredContexts books(tiers, *policy->placement());
  for (const Context& context : contexts) (void)books.store(context);
  (void)books.rearrange();
  const auto mean_quality = [&](const std::vector<Context>& truth) {
    double total = 0;
    for (const Context& context : truth) total += context.form(books.find(context.id)->at).quality;
    return total / static_cast<double>(truth.size());
  };
  const double before = mean_quality(contexts), stale = mean_quality(drifted);
  for (const Context& context : drifted) books.profile(context.id, context.forms);
  (void)books.rearrange();
  const double again = mean_quality(drifted);
  // Whoever had known from the start what is asked now would have placed them so.
  place_anew(*policy->placement(), tiers, drifted);
  for (const Context& context : drifted) EXPECT_EQ(books.find(context.id)->at, context.at) << context.id;
  fmt::print("quality {:.3f}, after drift {:.3f}, profiled again {:.3f}\n", before, stale, again);
  EXPECT_LT(stale, before - 0.05);
  EXPECT_GT(again, stale + 0.05);
}

}  // namespace
}  // namespace kvarena::storage
