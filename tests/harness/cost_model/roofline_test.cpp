#include "harness/cost_model/roofline.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/core/random.h"
#include "harness/cost_model/layer_offload.h"

namespace kvarena::cost_model {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(KVARENA_SOURCE_DIR) / "configs";

ModelShape shape(const std::string& name) { return read_shape(find_description(name, kConfigs / "shapes")); }

/// A machine that reaches its data sheet.
Hardware ideal(const std::string& name) {
  Hardware machine = read_hardware(find_description(name, kConfigs / "hardware"));
  machine.efficiency = {.memory = 1, .compute = 1, .link = 1, .usable_memory = 1, .source = "the ceiling"};
  return machine;
}

double tokens_per_second(const Hardware& machine, const CacheScheme& scheme, int64_t entries) {
  return 1 / decode_step(machine, shape("llama-3.1-8b"), scheme, 1, static_cast<double>(entries)).seconds;
}

TEST(Roofline, CeilingsOfBatchOneAreTheBytesOverTheBandwidth) {
  // Llama-3.1-8B, 16 bits: 2 x 7,504,924,672 bytes of weights that a step reads and 131,072 a cached token.
  const struct {
    const char* machine;
    double at_8k, at_32k, at_128k;
  } ceilings[] = {{"h200-141gb", 298, 249, 149},
                  {"h100-80gb", 208, 174, 104},
                  {"a100-80gb", 127, 106, 63},
                  {"a6000-48gb", 48, 40, 24}};
  for (const auto& expected : ceilings) {
    const Hardware machine = ideal(expected.machine);
    EXPECT_NEAR(tokens_per_second(machine, {}, 8192), expected.at_8k, 1) << expected.machine;
    EXPECT_NEAR(tokens_per_second(machine, {}, 32768), expected.at_32k, 1) << expected.machine;
    EXPECT_NEAR(tokens_per_second(machine, {}, 131072), expected.at_128k, 1) << expected.machine;
  }
}

TEST(Roofline, AtBatchOneASmallCacheBuysLittle) {
  const Hardware machine = ideal("h200-141gb");
  const CacheScheme packed{.bits = 2, .metadata_bits = metadata_bits(32, 64)};
  EXPECT_NEAR(tokens_per_second(machine, packed, 8192) / tokens_per_second(machine, {}, 8192), 1.06, 0.005);
  EXPECT_NEAR(tokens_per_second(machine, packed, 32768) / tokens_per_second(machine, {}, 32768), 1.23, 0.01);
}

TEST(Roofline, FetchingIsChargedToTheLinkAndHiddenUnderTheStepWhenOverlapped) {
  Hardware machine = ideal("h200-141gb");
  CacheScheme scheme{.tokens = 1, .offloaded = true, .fetched = 2048};
  StepEstimate step = decode_step(machine, shape("llama-3.1-8b"), scheme, 1, 32768);
  EXPECT_NEAR(step.link_seconds, 2048 * 131072 / 64e9, 1e-9);  // 4.2 ms, longer than the step's 3.2
  EXPECT_EQ(step.bound, Bound::link);
  EXPECT_DOUBLE_EQ(step.seconds, step.link_seconds);
  scheme.overlapped = false;
  EXPECT_DOUBLE_EQ(decode_step(machine, shape("llama-3.1-8b"), scheme, 1, 32768).seconds,
                   step.link_seconds + step.memory_seconds);
  scheme.fetched_anew = 0.2;
  EXPECT_NEAR(decode_step(machine, shape("llama-3.1-8b"), scheme, 1, 32768).link_bytes, 0.2 * 2048 * 131072, 1);
}

TEST(Roofline, BytesOfARequestByScheme) {
  const ModelShape mistral = shape("mistral-7b-v0.2");  // 65,536 numbers an entry
  EXPECT_DOUBLE_EQ(request_bytes(mistral, {}, 1000).resident, 1000.0 * 131072);
  // 2 bits with two 16-bit numbers for 64: 2.5 bits.
  const CacheScheme packed{.bits = 2, .metadata_bits = metadata_bits(32, 64), .residual = 64};
  EXPECT_DOUBLE_EQ(request_bytes(mistral, packed, 1000).resident, 936.0 * 65536 * 2.5 / 8 + 64.0 * 131072);
  EXPECT_DOUBLE_EQ(request_bytes(mistral, packed, 40).resident, 40.0 * 131072);
  const CacheScheme dropping{.keep = 0.25};
  EXPECT_DOUBLE_EQ(request_bytes(mistral, dropping, 1000).resident, 250.0 * 131072);
  const CacheScheme selecting{.attended = 100, .index_bytes_per_entry = 64};
  EXPECT_DOUBLE_EQ(request_bytes(mistral, selecting, 1000).resident, 1000.0 * (131072 + 64));
  EXPECT_DOUBLE_EQ(request_bytes(mistral, selecting, 1000).read, 100.0 * 131072 + 1000.0 * 64);
  const CacheScheme fetching{.tokens = 10, .offloaded = true, .fetched = 64};
  EXPECT_DOUBLE_EQ(request_bytes(mistral, fetching, 1000).resident, 74.0 * 131072);
  EXPECT_DOUBLE_EQ(request_bytes(mistral, fetching, 1000).host, 1000.0 * 131072);
  const CacheScheme copied{.traffic = 3, .copies = 2};
  EXPECT_DOUBLE_EQ(request_bytes(mistral, copied, 1000).resident, 2000.0 * 131072);
  EXPECT_DOUBLE_EQ(request_bytes(mistral, copied, 1000).read, 3000.0 * 131072);
}

TEST(Roofline, AMethodThatSelectsAmongThePromptAttendsToAllItGenerated) {
  const ModelShape mistral = shape("mistral-7b-v0.2");
  const CacheScheme scheme{.attended = 100, .selects_prompt = true};
  EXPECT_DOUBLE_EQ(request_bytes(mistral, scheme, {1000, 300}).attended, 400);
  EXPECT_DOUBLE_EQ(request_bytes(mistral, scheme, {390, 300}).attended, 390) << "a prompt below the budget";
  EXPECT_DOUBLE_EQ(request_bytes(mistral, {.attended = 100}, {1000, 300}).attended, 100);
}

TEST(Roofline, LayersThatAreAwayKeepTheirBudgetAndSendTheRest) {
  const ModelShape mistral = shape("mistral-7b-v0.2");
  const CacheScheme scheme{.attended = 100, .fetched_anew = 0.2, .layers_away = "all"};
  const RequestBytes half = request_bytes(mistral, scheme, {1000, 0, 0.5});
  EXPECT_DOUBLE_EQ(half.resident, (500 + 50) * 131072.0);
  EXPECT_DOUBLE_EQ(half.host, 500 * 131072.0);
  EXPECT_DOUBLE_EQ(half.link, 0.2 * 50 * 131072.0);
  EXPECT_DOUBLE_EQ(half.read, 100 * 131072.0);
}

/// Eq. 7 by hand: layers leave one at a time as a run grows, and no more requests fit than with all of them away.
TEST(Roofline, LayersLeaveAsTheLengthAsksFor) {
  const Hardware machine = ideal("a800-80gb");
  const ModelShape llama = shape("deepseek-r1-distill-llama-8b");
  const CacheScheme scheme{.attended = 2048, .fetched_anew = 0.2, .layers_away = "as needed"};
  const auto at = [&](int64_t context) {
    return estimate_run(machine, llama, scheme, {.context = context, .output = 1}, 32);
  };
  EXPECT_EQ(at(2048)->step.link_bytes, 0) << "all fit";
  double before = 0;
  for (const int64_t context : {14000, 18000, 24000, 34000}) {
    const double bytes = at(context)->step.link_bytes;
    EXPECT_GT(bytes, before) << context;
    EXPECT_NEAR(std::remainder(bytes, 32 * 0.2 * 2048 * 131072.0 / 32), 0, 1e-3) << "whole layers, " << context;
    before = bytes;
  }
  const Workload longest{.context = 34000, .output = 816};
  const int64_t most = largest_batch(machine, llama, scheme, longest);
  const auto fits = [&](int64_t requests) {
    return needed_bytes({.weight_bytes = 2 * llama.parameter_count(),
                         .requests = requests,
                         .layers = 32,
                         .kv_heads = 8,
                         .head_dim = 128,
                         .repeat = 4,
                         .budget = 2048},
                        34816, 32) <= machine.memory_bytes();
  };
  EXPECT_TRUE(fits(most));
  EXPECT_FALSE(fits(most + 1));
}

TEST(Roofline, KernelsAndEntriesTakeTimeBesideBytes) {
  Hardware machine = ideal("a800-80gb");
  const ModelShape qwen = shape("qwen3-8b");
  const double bytes_alone = decode_step(machine, qwen, {}, 4, 1000).seconds;
  machine.efficiency.kernel_us = 5;
  EXPECT_NEAR(decode_step(machine, qwen, {.entry_ns = 20}, 4, 1000).seconds,
              bytes_alone + 36 * 56 * 5e-6 + 4 * 1000 * 20e-9, 1e-12);
}

TEST(Roofline, PrefillIsBoundByOperations) {
  const Hardware machine = ideal("h100-80gb");
  const ModelShape llama = shape("llama-3.1-8b");
  // 2 (8.03e9 - 2 x 0.525e9) n and, causal, 4 x 32 x 32 x 128 n (n + 1) / 2 operations.
  const double n = 8192;
  const double flops =
      2 * n * (8'030'261'248.0 - 2 * 525'336'576.0) + 2 * 525'336'576.0 + 4 * 131072.0 * n * (n + 1) / 2;
  EXPECT_NEAR(prefill_seconds(machine, llama, 1, 8192), flops / 989.4e12, 1e-9);
  EXPECT_NEAR(prefill_seconds(machine, llama, 1, 1), 2 * 7'504'924'672.0 / 3.35e12, 1e-5);  // one token: the weights
}

TEST(Roofline, LatentModelsCacheTheLatent) {
  const ModelShape v3 = shape("deepseek-v3");
  EXPECT_DOUBLE_EQ(request_bytes(v3, {}, 1).resident, 70272);  // "70 KB a token", arXiv:2412.19437
  EXPECT_GT(decode_step(ideal("h200-141gb"), v3, {}, 64, 4096).weight_bytes, 2 * 5 * v3.active_parameters());
}

TEST(Roofline, TheLargestBatchFitsAndOneMoreDoesNot) {
  const RandomStream random(7, "roofline");
  uint64_t drawn = 0;
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random.below(bound, drawn++)); };
  const Hardware machine = ideal("a6000-48gb");
  const ModelShape mistral = shape("mistral-7b-v0.2");
  for (int64_t round = 0; round < 500; ++round) {
    CacheScheme scheme{.bits = static_cast<double>(1 + below(16)), .keep = 0.05 + 0.95 * random.uniform(drawn++)};
    scheme.residual = below(128);
    if (below(3) == 0) scheme.tokens = 64 + below(4096);
    const Workload workload{.context = 128 + below(60000), .output = below(4000)};
    const int64_t most = largest_batch(machine, mistral, scheme, workload);
    const double each =
        request_bytes(mistral, scheme, static_cast<double>(workload.context + workload.output)).resident;
    const double weights = 2.0 * static_cast<double>(mistral.parameter_count());
    EXPECT_LE(weights + static_cast<double>(most) * each, machine.memory_bytes()) << "round " << round;
    EXPECT_GT(weights + static_cast<double>(most + 1) * each, machine.memory_bytes()) << "round " << round;

    const CacheScheme full{};
    const auto run = estimate_run(machine, mistral, scheme, workload);
    const auto plain = estimate_run(machine, mistral, full, workload);
    if (run && plain) {
      EXPECT_GE(run->batch, plain->batch) << "round " << round;
    }
  }
}

TEST(Roofline, HostMemoryLimitsWhatIsOffloaded) {
  Hardware machine = ideal("a6000-48gb");
  const CacheScheme scheme{.bits = 1, .offloaded = true, .fetched = 64};
  const Workload workload{.context = 32768, .output = 0};
  const int64_t unlimited = largest_batch(machine, shape("mistral-7b-v0.2"), scheme, workload);
  machine.host_memory_gib = Figure{.value = 64, .source = "a test"};
  EXPECT_EQ(largest_batch(machine, shape("mistral-7b-v0.2"), scheme, workload), 16);  // 4 GiB each
  EXPECT_GT(unlimited, 16);
}

TEST(Roofline, NothingWhereNotEvenOneRequestFits) {
  EXPECT_FALSE(estimate_run(ideal("rtx4060-laptop-4gb"), shape("llama-3.1-8b"), {}, {.context = 100, .output = 1}));
  EXPECT_EQ(largest_batch(ideal("a6000-48gb"), shape("llama-3.3-70b"), {}, {.context = 100, .output = 1}), 0);
}

TEST(Roofline, ARunIsItsMeanStep) {
  const Hardware machine = ideal("a100-80gb");
  const ModelShape llama = shape("llama-3.1-8b");
  const auto run = estimate_run(machine, llama, {}, {.context = 2000, .output = 1000}, 4);
  ASSERT_TRUE(run);
  double seconds = 0;
  for (int64_t t = 0; t < 1000; ++t)
    seconds += decode_step(machine, llama, {}, 4, 2000.5 + static_cast<double>(t)).seconds;
  EXPECT_NEAR(1000 * run->step.seconds, seconds, 1e-9 * seconds);
  EXPECT_NEAR(run->end_to_end_tokens_per_second, 4000 / (seconds + run->prefill_seconds), 1e-6);
}

}  // namespace
}  // namespace kvarena::cost_model
