// The loop on the modelled clock: every request comes out once, the budget holds, and load above capacity queues.

#include "harness/engine/serving/serve.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "harness/core/random.h"
#include "harness/cost_model/roofline.h"
#include "harness/engine/serving/modelled_executor.h"

namespace kvarena::serving {
namespace {

// A model of 1e9 parameters in 16 bit on a small accelerator.
const cost_model::Hardware machine = [] {
  cost_model::Hardware ideal;
  ideal.memory_gb_per_s.value = 1000;
  ideal.compute_tflop_per_s.value = 100;
  ideal.efficiency.memory = ideal.efficiency.compute = 1;
  ideal.efficiency.kernel_us = 1;
  return ideal;
}();
constexpr ServedModel model{.weight_bytes = 2e9, .flops_per_token = 2e9, .flops_per_entry = 1e5, .kernels = 100};

std::vector<double> poisson(double rate, int64_t count, const RandomStream& random) {
  std::vector<double> times;
  double now = 0;
  for (int64_t i = 0; i < count; ++i) {
    times.push_back(now);
    now -= std::log1p(-random.uniform(static_cast<uint64_t>(i))) / rate;
  }
  return times;
}

TEST(Serve, OneRequestTakesWhatItsBytesAndOperationsTake) {
  // 1000 prompt tokens in passes of 512: 2e9 operations a token at 1e14 a second, plus attention.
  ModelledExecutor executor(
      machine, model, {{.prompt_tokens = 1000, .output_tokens = 3, .bytes_per_token = 1e5, .scheme = {.keep = 0.5}}});
  const ServingRun run = serve(Load::at_times({0}), executor, {});
  const double first = 1e-4 + (512 * 2e9 + 1e5 * 512 * 513 / 2) / 1e14;
  const double second = 1e-4 + (488 * 2e9 + 1e5 * (488 * 512.0 + 488 * 489 / 2)) / 1e14;
  const double step = 1e-4 + (2e9 + 1e5 * (500 + 1)) / 1e12;  // a step reads the weights and what is kept
  const Timeline& request = run.requests[0];
  ASSERT_EQ(request.token_s.size(), 3U);
  EXPECT_NEAR(request.token_s[0] - request.arrival_s, first + second, 1e-9);
  EXPECT_NEAR(request.token_s[1] - request.token_s[0], step, 1e-9);
  EXPECT_EQ(run.passes, 4);
  EXPECT_EQ(request.outcome, Outcome::answered);
}

/// Methods that keep, drop, pack, select and fetch.
TEST(Serve, AStepTakesWhatTheRooflineEstimatesOfIt) {
  const std::filesystem::path configs = std::filesystem::path(KVARENA_SOURCE_DIR) / "configs";
  const cost_model::Hardware gpu = cost_model::read_hardware(configs / "hardware" / "h100-80gb.json");
  const cost_model::ModelShape llama = cost_model::read_shape(configs / "shapes" / "llama-3.1-8b.json");
  const ServedModel served{.weight_bytes = 2 * llama.read_parameters(1),
                           .flops_per_token = 2 * llama.active_parameters(),
                           .flops_per_entry = 2 * static_cast<double>(llama.attention_products_per_entry()),
                           .kernels = cost_model::kernels_of(llama.layers, llama.qk_norm)};
  constexpr int64_t prompt = 30000;
  for (const cost_model::CacheScheme& scheme : {cost_model::CacheScheme{},
                                                {.keep = 0.25},
                                                {.bits = 2, .metadata_bits = 0.5},
                                                {.attended = 2048, .index_bytes_per_entry = 8192},
                                                {.keep = 0.07, .attended = 2048, .offloaded = true, .fetched = 400}}) {
    for (const int64_t batch : {1, 8}) {
      ModelledExecutor executor(
          gpu, served,
          std::vector<ModelledRequest>(static_cast<size_t>(batch),
                                       {.prompt_tokens = prompt,
                                        .output_tokens = 3,
                                        .bytes_per_token = 2 * static_cast<double>(llama.numbers_per_entry()),
                                        .scheme = scheme,
                                        .answer_kept = scheme.keep}));
      PassPlan prompts, steps;
      for (int64_t request = 0; request < batch; ++request) {
        prompts.chunks.push_back({.request = request, .tokens = prompt});
        steps.steps.push_back(request);
      }
      (void)executor.run(prompts);  // gives the first token
      const double estimated = cost_model::decode_step(gpu, llama, scheme, batch, prompt + 1).seconds;
      EXPECT_NEAR(executor.run(steps).seconds, estimated, 1e-12 * estimated) << batch;
    }
  }
}

TEST(Serve, ASelectingRequestIsChargedWhatItAttendsTo) {
  // 100 of 1000 entries of 1e5 bytes and 1000 bytes of an index for each, beside 2e9 of weights, at 1e12 a second.
  ModelledExecutor executor(machine, model,
                            {{.prompt_tokens = 999,
                              .output_tokens = 3,
                              .bytes_per_token = 1e5,
                              .scheme = {.attended = 100, .index_bytes_per_entry = 1000}}});
  (void)executor.run({.steps = {}, .chunks = {{.request = 0, .tokens = 999}}});
  EXPECT_NEAR(executor.run({.steps = {0}, .chunks = {}}).seconds, 1e-4 + (2e9 + 100 * 1e5 + 1000 * 1e3) / 1e12, 1e-12);
  EXPECT_EQ(executor.bytes_to_end(0), 1002 * 101'000);  // all of it stays
}

TEST(Serve, IdleTimeIsSkipped) {
  ModelledExecutor executor(machine, model,
                            std::vector<ModelledRequest>(2, {.prompt_tokens = 8, .bytes_per_token = 1}));
  const ServingRun run = serve(Load::at_times({0, 1000}), executor, {});
  EXPECT_LT(run.requests[1].token_s[0] - 1000, 0.01);
  EXPECT_LT(run.busy_seconds, 0.01);
  EXPECT_GT(run.seconds, 1000);
}

TEST(ServingLoop, RequestsComeAndAreCancelledBetweenPasses) {
  ModelledExecutor executor(
      machine, model, std::vector<ModelledRequest>(3, {.prompt_tokens = 8, .output_tokens = 4, .bytes_per_token = 1}));
  std::map<int64_t, Timeline> gone;
  ServingLoop loop(executor, {.max_running = 1}, [&](int64_t request, Timeline timeline) { gone[request] = timeline; });
  EXPECT_FALSE(loop.pass());
  loop.wait_until(5);
  EXPECT_EQ(loop.now(), 5);
  loop.arrive(0, 4);
  loop.arrive(1, 5);
  const auto first = loop.pass();
  ASSERT_EQ(first->size(), 1U);
  EXPECT_EQ(first->at(0).request, 0);
  EXPECT_EQ(loop.inside(), 2);
  EXPECT_EQ(loop.waiting(), 1);
  loop.cancel(0, "gone");  // while it runs
  EXPECT_EQ(gone.at(0).outcome, Outcome::cancelled);
  EXPECT_EQ(gone.at(0).reason, "gone");
  EXPECT_EQ(gone.at(0).arrival_s, 4);
  EXPECT_EQ(loop.reserved_bytes(), 0);
  loop.arrive(2, loop.now());
  loop.cancel(1, "gone");  // while it waits
  while (loop.pass()) {
  }
  EXPECT_EQ(gone.at(2).outcome, Outcome::answered);
  EXPECT_EQ(gone.at(2).token_s.size(), 4U);
  EXPECT_EQ(loop.inside(), 0);
  EXPECT_EQ(loop.totals().passes, 5);
  loop.wait_until(0);
  EXPECT_GT(loop.now(), 5);
}

TEST(Serve, RandomArrivalsAllComeOutOnceWithinTheBudget) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomStream random(seed, "serving property");
    const auto count = static_cast<int64_t>(1 + random.below(60, 0));
    const auto budget = static_cast<int64_t>(2e6 + 2e7 * random.uniform(1));
    std::vector<ModelledRequest> requests;
    for (int64_t i = 0; i < count; ++i) {
      const auto draw = static_cast<uint64_t>(1000 + 10 * i);
      requests.push_back({.prompt_tokens = 1 + static_cast<int64_t>(random.below(900, draw)),
                          .output_tokens = 1 + static_cast<int64_t>(random.below(50, draw + 1)),
                          .bytes_per_token = 1e4,
                          .scheme = {.keep = 0.1 + 0.9 * random.uniform(draw + 2)}});
    }
    ModelledExecutor executor(machine, model, requests);
    const BatchSettings settings{.cache_bytes = budget,
                                 .pass_tokens = static_cast<int64_t>(17 + random.below(500, 2)),
                                 .max_running = static_cast<int64_t>(1 + random.below(16, 3))};
    const bool closed = random.below(2, 4) == 1;
    const ServingRun run = serve(closed ? Load::of_clients(static_cast<int64_t>(1 + random.below(8, 5)), count, 0.01)
                                        : Load::at_times(poisson(20 * random.uniform(6) + 1, count, random)),
                                 executor, settings);
    ASSERT_EQ(run.requests.size(), static_cast<size_t>(count));
    double last_admitted = 0;
    for (int64_t i = 0; i < count; ++i) {
      const Timeline& timeline = run.requests[static_cast<size_t>(i)];
      const bool fits = executor.needs(i).bytes <= budget;
      ASSERT_EQ(timeline.outcome, fits ? Outcome::answered : Outcome::refused) << i;
      if (!fits) {
        EXPECT_NE(timeline.reason.find("bytes of cache"), std::string::npos);
        continue;
      }
      EXPECT_EQ(static_cast<int64_t>(timeline.token_s.size()), requests[static_cast<size_t>(i)].output_tokens);
      EXPECT_TRUE(std::ranges::is_sorted(timeline.token_s));
      EXPECT_LE(timeline.arrival_s, timeline.admitted_s);
      EXPECT_LT(timeline.admitted_s, timeline.token_s.front());
      EXPECT_EQ(timeline.left_s, timeline.token_s.back());
      EXPECT_GE(timeline.admitted_s, last_admitted);  // nobody overtakes
      last_admitted = timeline.admitted_s;
    }
    EXPECT_LE(run.peak_reserved_bytes, budget);
    EXPECT_LE(run.peak_held_bytes, run.peak_reserved_bytes);
    EXPECT_EQ(run.overrun_bytes, 0);
    EXPECT_LE(run.peak_running, settings.max_running);
  }
}

TEST(Serve, OpenLoopsBelowNearAndAboveCapacity) {
  constexpr int64_t count = 600;
  const std::vector<ModelledRequest> requests(
      count, {.prompt_tokens = 900, .output_tokens = 60, .bytes_per_token = 1e5, .scheme = {.keep = 0.25}});
  const BatchSettings settings{.cache_bytes = 2'000'000'000};
  const auto run_at = [&](Load load) {
    ModelledExecutor executor(machine, model, requests);
    return serve(std::move(load), executor, settings);
  };
  // Capacity: requests per second when there is always one waiting.
  const ServingRun full = run_at(Load::of_clients(200, count));
  const double capacity = static_cast<double>(count) / full.seconds;
  std::vector<double> early, late;
  for (const double share : {0.5, 0.9, 1.2}) {
    const RandomStream random(5, "open loop");
    const ServingRun run = run_at(Load::at_times(poisson(share * capacity, count, random)));
    std::vector<double> queueing;
    for (const Timeline& request : run.requests) queueing.push_back(request.token_s[0] - request.arrival_s);
    const auto mean = [&](size_t from, size_t to) {
      double total = 0;
      for (size_t i = from; i < to; ++i) total += queueing[i];
      return total / static_cast<double>(to - from);
    };
    early.push_back(mean(100, 300));
    late.push_back(mean(400, 600));
    fmt::print("{}x of {:.1f} requests/s: TTFT {:.3f} s early, {:.3f} s late; peak waiting {}\n", share, capacity,
               early.back(), late.back(), run.peak_waiting);
  }
  const double alone = run_at(Load::at_times(std::vector<double>(1, 0))).requests[0].token_s[0];
  EXPECT_LT(late[0], 3 * alone);   // stable: hardly any waiting
  EXPECT_LT(late[1], 20 * alone);  // near stable: waiting, but it does not grow without end
  EXPECT_GT(late[1], late[0]);
  EXPECT_GT(late[2], 1.5 * early[2]);  // above capacity the queue grows as long as requests come
  EXPECT_GT(late[2], 2 * late[1]);
}

/// Fails one request in its third pass; answers others after five tokens.
class Faulty final : public Executor {
 public:
  RequestNeeds needs(int64_t request) const override {
    return {
        .prompt_tokens = 4, .bytes = 10, .refusal = request == 2 ? "no" : "", .patience_s = request == 3 ? 2.5 : 1e9};
  }
  PassResult run(const PassPlan& plan) override {
    PassResult result{.seconds = 1};
    const auto step = [&](int64_t request) {
      const int64_t tokens = ++emitted_[request];
      const bool fails = request == 1 && tokens == 3;
      if (dropped.contains(request)) ADD_FAILURE() << request << " runs after it was dropped";
      result.progress.push_back(
          {.request = request, .tokens = fails ? 0 : 1, .finished = tokens == 5, .failure = fails ? "broke" : ""});
    };
    for (const int64_t request : plan.steps) step(request);
    for (const auto& chunk : plan.chunks) step(chunk.request);
    return result;
  }
  int64_t bytes_to_end(int64_t) const override { return 5; }
  int64_t bytes_now(int64_t) const override { return 5; }
  void drop(int64_t request) override { dropped.insert(request); }

  std::set<int64_t> dropped;

 private:
  std::map<int64_t, int64_t> emitted_;
};

TEST(Serve, RefusalFailureAndCancellationLeaveOthersUntouched) {
  Faulty executor;
  const ServingRun run = serve(Load::at_times({0, 0, 0, 0, 0}), executor, {});
  EXPECT_EQ(run.requests[0].outcome, Outcome::answered);
  EXPECT_EQ(run.requests[4].outcome, Outcome::answered);
  EXPECT_EQ(run.requests[0].token_s, run.requests[4].token_s);
  EXPECT_EQ(run.requests[0].token_s, (std::vector<double>{1, 2, 3, 4, 5}));
  EXPECT_EQ(run.requests[1].outcome, Outcome::failed);
  EXPECT_EQ(run.requests[1].reason, "broke");
  EXPECT_EQ(run.requests[2].outcome, Outcome::refused);
  EXPECT_EQ(run.requests[3].outcome, Outcome::cancelled);
  EXPECT_EQ(run.requests[3].reason, "the client left after 2.5 s");
  EXPECT_EQ(executor.dropped, (std::set<int64_t>{3}));
}

TEST(Serve, ACancelledRequestThatStillWaitsIsNotDropped) {
  Faulty executor;
  const ServingRun run = serve(Load::at_times({0, 0, 0, 0}), executor, {.cache_bytes = 10});
  EXPECT_EQ(run.requests[3].outcome, Outcome::cancelled);
  EXPECT_TRUE(executor.dropped.empty());
  EXPECT_EQ(run.requests[0].outcome, Outcome::answered);
}

}  // namespace
}  // namespace kvarena::serving
