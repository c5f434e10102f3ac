#include "harness/cost_model/remote_prefix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "harness/core/linear_program.h"

namespace kvarena::cost_model {
namespace {

/// The quantities that Appendix B.2 derives, for given occupancies.
struct Derived {
  double full_local, full_remote, compressed_remote, rest_remote;  // T_h, T_l, T_l^c, T_l^rem
  double local_token, remote_token;                                // T_tok of each pool
  double local_slot, remote_slot;                                  // time that a slot is charged for a token
  double drafts;                                                   // K / gamma
  double rounds;                                                   // N_1
  double stream_drafts, stream_rounds, stream_rest;                // N_draft, N_2, K_2
};

Derived derive(const RemotePrefixSetting& s, double local_batch, double remote_batch, SlotTime slot_time) {
  Derived d{};
  d.full_local = s.cache_bytes / s.local_link_bandwidth;
  d.full_remote = s.cache_bytes / s.remote_link_bandwidth;
  d.compressed_remote = s.kept * d.full_remote;
  d.rest_remote = s.rest_bytes ? *s.rest_bytes / s.remote_link_bandwidth : (1 - s.kept) * d.full_remote;
  d.local_token = token_seconds(s, local_batch);
  d.remote_token = token_seconds(s, remote_batch);
  d.local_slot = d.local_token * (slot_time == SlotTime::wallclock ? local_batch : 1);
  d.remote_slot = d.remote_token * (slot_time == SlotTime::wallclock ? remote_batch : 1);
  const auto tokens = static_cast<double>(s.output_tokens);
  const auto x = static_cast<double>(s.draft_length);
  d.drafts = tokens / s.acceptance;
  d.rounds = std::ceil(tokens / (s.acceptance * x));
  d.stream_drafts = std::min(d.rest_remote / d.remote_token, d.drafts);
  d.stream_rounds = std::ceil(d.stream_drafts / x);
  d.stream_rest = std::max(0.0, tokens - s.acceptance * d.stream_drafts);
  return d;
}

/// Verification on the local pool in `rounds` passes while `drafts` tokens are drafted elsewhere.
PoolCost verifier(const Derived& d, double rounds, double drafts, bool cached) {
  if (cached) return {d.full_local, rounds * d.local_token, d.full_local + drafts * d.remote_slot};
  return {rounds * d.full_local, rounds * d.local_token, rounds * (d.full_local + d.local_slot)};
}

RemotePrefixRates solve_at(const RemotePrefixSetting& setting, std::span<const Path> paths, SlotTime slot_time,
                           double local_batch, double remote_batch) {
  const auto local = static_cast<double>(setting.local_gpus);
  const auto remote = static_cast<double>(setting.remote_gpus);
  const auto most = static_cast<double>(max_requests(setting));
  LinearProgram program{.gain = std::vector<double>(paths.size(), static_cast<double>(setting.output_tokens)),
                        .rows = std::vector<std::vector<double>>(6),
                        .limits = {local, local, local * most, remote, remote, remote * most}};  // Eqs. 13 to 18
  if (setting.one_device) {
    program.rows.emplace_back();
    program.limits.push_back(1);
  }
  for (const Path path : paths) {
    const PathCost cost = path_cost(setting, path, local_batch, remote_batch, slot_time);
    const std::array<double, 7> column = {cost.local.network,
                                          cost.local.compute,
                                          cost.local.slot,
                                          cost.remote.network,
                                          cost.remote.compute,
                                          cost.remote.slot,
                                          cost.local.compute + cost.remote.compute};
    for (size_t row = 0; row < program.rows.size(); ++row) program.rows[row].push_back(column[row]);
  }
  RemotePrefixRates rates{.local_batch = local_batch, .remote_batch = remote_batch};
  const std::vector<double> solution = solve(program);
  for (size_t i = 0; i < paths.size(); ++i) {
    rates.requests_per_second[static_cast<size_t>(paths[i])] = solution[i];
    rates.tokens_per_second += solution[i] * static_cast<double>(setting.output_tokens);
  }
  return rates;
}

}  // namespace

Path path_named(const std::string& name, const std::string& place) {
  const auto found = std::ranges::find(path_names, name);
  if (found != path_names.end()) return all_paths[static_cast<size_t>(found - path_names.begin())];
  const std::vector<std::string> names(path_names.begin(), path_names.end());
  fail({.place = place,
        .found = fmt::format("\"{}\"", name),
        .expected = fmt::format("one of {}", fmt::join(names, ", ")),
        .nearest = nearest_name(name, names)});
}

int64_t max_requests(const RemotePrefixSetting& setting) {
  const auto most =
      static_cast<int64_t>(std::floor((setting.memory_bytes - setting.weight_bytes) / setting.cache_bytes));
  if (most < 1) {
    fail({.place = "remote prefix setting",
          .found = fmt::format("{:.3g} bytes of memory for {:.3g} of weights and {:.3g} of cache", setting.memory_bytes,
                               setting.weight_bytes, setting.cache_bytes),
          .expected = "room for one request at least"});
  }
  return most;
}

double token_seconds(const RemotePrefixSetting& setting, double batch) {
  return (setting.weight_bytes / batch + setting.cache_bytes) / setting.memory_bandwidth;
}

PathCost path_cost(const RemotePrefixSetting& setting, Path path, double local_batch, double remote_batch,
                   SlotTime slot_time) {
  const Derived d = derive(setting, local_batch, remote_batch, slot_time);
  const auto tokens = static_cast<double>(setting.output_tokens);
  switch (path) {
    case Path::local: return {.local = {d.full_local, tokens * d.local_token, d.full_local + tokens * d.local_slot}};
    case Path::remote:
      return {.remote = {d.full_remote, tokens * d.remote_token, d.full_remote + tokens * d.remote_slot}};
    case Path::verify_only_cached:
    case Path::verify_only_stateless:
      return {
          .local = verifier(d, d.rounds, d.drafts, path == Path::verify_only_cached),
          .remote = {d.compressed_remote, d.drafts * d.remote_token, d.compressed_remote + d.drafts * d.remote_slot}};
    case Path::verify_streaming_cached:
    case Path::verify_streaming_stateless:
      return {.local = verifier(d, d.stream_rounds, d.stream_drafts, path == Path::verify_streaming_cached),
              .remote = {d.compressed_remote + d.rest_remote, (d.stream_drafts + d.stream_rest) * d.remote_token,
                         d.compressed_remote + std::max(d.stream_drafts * d.remote_slot, d.rest_remote) +
                             d.stream_rest * d.remote_slot}};
  }
  return {};
}

RemotePrefixRates best_rates(const RemotePrefixSetting& setting, std::span<const Path> paths, SlotTime slot_time) {
  const auto most = static_cast<double>(max_requests(setting));
  return solve_at(setting, paths, slot_time, most, most);
}

RemotePrefixRates best_rates_at_occupancy(const RemotePrefixSetting& setting, std::span<const Path> paths,
                                          SlotTime slot_time) {
  const auto most = static_cast<double>(max_requests(setting));
  double local_batch = most, remote_batch = most;
  RemotePrefixRates rates;
  for (int64_t round = 0; round < 100; ++round) {
    rates = solve_at(setting, paths, slot_time, local_batch, remote_batch);
    double local_slots = 0, remote_slots = 0;
    for (int64_t i = 0; i < path_count; ++i) {
      const PathCost cost = path_cost(setting, static_cast<Path>(i), local_batch, remote_batch, slot_time);
      local_slots += cost.local.slot * rates.requests_per_second[i];
      remote_slots += cost.remote.slot * rates.requests_per_second[i];
    }
    const auto damped = [most](double batch, double slots, int64_t gpus) {
      return 0.5 * batch + 0.5 * std::clamp(slots / static_cast<double>(gpus), 1.0, most);
    };
    const double local_next = damped(local_batch, local_slots, setting.local_gpus);
    const double remote_next = damped(remote_batch, remote_slots, setting.remote_gpus);
    const double change = std::max(std::abs(local_next / local_batch - 1), std::abs(remote_next / remote_batch - 1));
    local_batch = local_next;
    remote_batch = remote_next;
    if (change < 1e-6) break;
  }
  return rates;
}

std::vector<Path> share_out(const RemotePrefixRates& rates, int64_t requests) {
  double all = 0;
  for (const double rate : rates.requests_per_second) all += rate;
  if (all <= 0) {
    fail({.place = "paths of remote prefix reuse",
          .found = "no path that serves a request",
          .expected = "one at least",
          .action = "allow more paths"});
  }
  std::array<double, path_count> owed{};
  std::vector<Path> shared;
  for (int64_t request = 0; request < requests; ++request) {
    for (size_t i = 0; i < owed.size(); ++i) owed[i] += rates.requests_per_second[i] / all;
    const auto most = std::ranges::max_element(owed);
    *most -= 1;
    shared.push_back(all_paths[static_cast<size_t>(most - owed.begin())]);
  }
  return shared;
}

}  // namespace kvarena::cost_model
