// Appendix B.2's linear programme against numbers worked out beside it (GB and GB/s).

#include "harness/cost_model/remote_prefix.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/core/random.h"

namespace kvarena::cost_model {
namespace {

RemotePrefixSetting setting(int64_t output_tokens) {
  return {.weight_bytes = 16,
          .cache_bytes = 1,
          .memory_bytes = 26,
          .memory_bandwidth = 1000,
          .local_link_bandwidth = 40,
          .remote_link_bandwidth = 1.2,
          .local_gpus = 1,
          .remote_gpus = 4,
          .kept = 0.25,
          .acceptance = 0.8,
          .draft_length = 40,
          .output_tokens = output_tokens};
}

TEST(RemotePrefix, PathCostsAsWorkedOut) {
  const RemotePrefixSetting s = setting(256);
  EXPECT_EQ(max_requests(s), 10);
  EXPECT_NEAR(token_seconds(s, 10), 2.6e-3, 1e-12);
  const PathCost cached = path_cost(s, Path::verify_only_cached, 10, 10);
  EXPECT_NEAR(cached.local.network, 0.025, 1e-9);
  EXPECT_NEAR(cached.local.compute, 0.0208, 1e-9);
  EXPECT_NEAR(cached.local.slot, 0.857, 1e-9);
  EXPECT_NEAR(cached.remote.network, 0.208333, 1e-6);
  EXPECT_NEAR(cached.remote.compute, 0.832, 1e-9);
  EXPECT_NEAR(cached.remote.slot, 1.040333, 1e-6);
  const PathCost streaming = path_cost(s, Path::verify_streaming_cached, 10, 10);
  EXPECT_NEAR(streaming.remote.network, 0.833333, 1e-6);
  EXPECT_NEAR(streaming.remote.compute, 0.7906, 1e-6);
  EXPECT_NEAR(streaming.remote.slot, 0.998933, 1e-6);
}

TEST(RemotePrefix, BestRatesAsWorkedOut) {
  const RemotePrefixRates rates = best_rates(setting(256));
  EXPECT_NEAR(rates.tokens_per_second, 1835.985, 1e-3);
  EXPECT_NEAR(rates.requests_per_second[static_cast<int>(Path::local)], 1.4646, 1e-4);
  EXPECT_NEAR(rates.requests_per_second[static_cast<int>(Path::remote)], 4.4976, 1e-4);
  // Compute binds on both pools, and there the cached and the stateless form cost the same: only their sum is decided.
  EXPECT_NEAR(rates.requests_per_second[static_cast<int>(Path::verify_only_cached)] +
                  rates.requests_per_second[static_cast<int>(Path::verify_only_stateless)],
              1.2096, 1e-4);

  const RemotePrefixRates plain = best_rates(setting(256), plain_paths);
  EXPECT_NEAR(plain.tokens_per_second, 1613.415, 1e-3);
  EXPECT_NEAR(plain.requests_per_second[static_cast<int>(Path::local)], 1.5024, 1e-4);
  EXPECT_NEAR(plain.requests_per_second[static_cast<int>(Path::remote)], 4.8, 1e-4);
}

TEST(RemotePrefix, ShortOutputsGainMostAndLongOnesNothing) {
  EXPECT_NEAR(best_rates(setting(64)).tokens_per_second, 1575.015, 1e-3);
  EXPECT_NEAR(best_rates(setting(64), plain_paths).tokens_per_second, 691.815, 1e-3);
  EXPECT_NEAR(best_rates(setting(1024)).tokens_per_second, 1923.077, 1e-3);
  EXPECT_NEAR(best_rates(setting(1024), plain_paths).tokens_per_second, 1923.077, 1e-3);
}

TEST(RemotePrefix, RatesNeverUseMoreThanThereIs) {
  const RandomStream random(11, "settings");
  for (uint64_t i = 0; i < 500; ++i) {
    const auto draw = [&](uint64_t k, double low, double high) {
      return low + (high - low) * random.uniform(i * 16 + k);
    };
    RemotePrefixSetting s = setting(static_cast<int64_t>(draw(0, 1, 2000)));
    s.cache_bytes = draw(1, 0.1, 9);
    s.remote_link_bandwidth = draw(2, 0.2, 40);
    s.kept = draw(3, 0.05, 1);
    s.acceptance = draw(4, 0.05, 1);
    s.draft_length = static_cast<int64_t>(draw(5, 1, 60));
    s.remote_gpus = static_cast<int64_t>(draw(6, 1, 9));
    for (const SlotTime slot : {SlotTime::paper, SlotTime::wallclock}) {
      const RemotePrefixRates rates = best_rates_at_occupancy(s, all_paths, slot);
      PoolCost local, remote;
      for (int64_t p = 0; p < path_count; ++p) {
        const PathCost cost = path_cost(s, static_cast<Path>(p), rates.local_batch, rates.remote_batch, slot);
        const double rate = rates.requests_per_second[p];
        EXPECT_GE(rate, 0);
        local.network += rate * cost.local.network;
        local.compute += rate * cost.local.compute;
        local.slot += rate * cost.local.slot;
        remote.network += rate * cost.remote.network;
        remote.compute += rate * cost.remote.compute;
        remote.slot += rate * cost.remote.slot;
      }
      const double most = static_cast<double>(max_requests(s)) * (1 + 1e-7);
      EXPECT_LE(std::max(local.network, local.compute), 1 + 1e-7) << i;
      EXPECT_LE(local.slot, most) << i;
      const double gpus = static_cast<double>(s.remote_gpus);
      EXPECT_LE(std::max(remote.network, remote.compute), gpus * (1 + 1e-7)) << i;
      EXPECT_LE(remote.slot, gpus * most) << i;
      EXPECT_GE(best_rates(s, all_paths, slot).tokens_per_second,
                best_rates(s, plain_paths, slot).tokens_per_second * (1 - 1e-9))
          << i;
    }
  }
}

TEST(RemotePrefix, OnlyTheGivenPathsServe) {
  constexpr std::array<Path, 2> chosen = {Path::verify_streaming_cached, Path::remote};
  const RemotePrefixRates rates = best_rates(setting(64), chosen);
  for (int64_t p = 0; p < path_count; ++p) {
    const bool given = static_cast<Path>(p) == chosen[0] || static_cast<Path>(p) == chosen[1];
    if (!given) {
      EXPECT_EQ(rates.requests_per_second[p], 0) << path_names[p];
    }
  }
  EXPECT_LE(rates.tokens_per_second, best_rates(setting(64)).tokens_per_second * (1 + 1e-9));
  EXPECT_GT(rates.tokens_per_second, 0);
}

TEST(RemotePrefix, OneDeviceComputesForBothPools) {
  RemotePrefixSetting s = setting(256);
  s.one_device = true;
  const RemotePrefixRates rates = best_rates(s);
  double compute = 0;
  for (int64_t p = 0; p < path_count; ++p) {
    const PathCost cost = path_cost(s, static_cast<Path>(p), rates.local_batch, rates.remote_batch);
    compute += rates.requests_per_second[p] * (cost.local.compute + cost.remote.compute);
  }
  EXPECT_LE(compute, 1 + 1e-9);
  // Decoding plainly costs 256 * 2.6 ms of it, wherever; nothing serves more.
  EXPECT_NEAR(rates.tokens_per_second, 1 / 2.6e-3, 1e-6);
}

TEST(RemotePrefix, WhatStreamingSendsCanBeTheWholeCache) {
  RemotePrefixSetting s = setting(256);
  const double rest = path_cost(s, Path::verify_streaming_cached, 10, 10).remote.network;
  s.rest_bytes = s.cache_bytes;
  const double whole = path_cost(s, Path::verify_streaming_cached, 10, 10).remote.network;
  EXPECT_NEAR(whole - rest, 0.25 / 1.2, 1e-9);  // c KV / BW_l
}

TEST(RemotePrefix, RequestsAreSharedOutAsTheRatesSay) {
  RemotePrefixRates rates;
  rates.requests_per_second[static_cast<size_t>(Path::remote)] = 3;
  rates.requests_per_second[static_cast<size_t>(Path::verify_only_cached)] = 1;
  const std::vector<Path> shared = share_out(rates, 8);
  EXPECT_EQ(std::ranges::count(shared, Path::remote), 6);
  EXPECT_EQ(std::ranges::count(shared, Path::verify_only_cached), 2);
  EXPECT_EQ(std::ranges::count(std::span(shared).first(4), Path::verify_only_cached), 1);
  EXPECT_THROW((void)share_out({}, 1), UserError);
  EXPECT_EQ(path_named("verify_only_cached", "test"), Path::verify_only_cached);
  EXPECT_THROW((void)path_named("verify_only", "test"), UserError);
}

TEST(RemotePrefix, TooLittleMemoryIsExplained) {
  RemotePrefixSetting s = setting(64);
  s.memory_bytes = 16.5;
  EXPECT_THROW((void)best_rates(s), UserError);
}

}  // namespace
}  // namespace kvarena::cost_model
