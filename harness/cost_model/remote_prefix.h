#pragma once
// Remote prefix caching: two pools of accelerators share a store, one over a fast link and one over a slow one. Which
// mix of plain and draft-and-verify paths serves the most tokens. Yao et al. 2026, arXiv:2605.17613, Appendix B.2
// (Eqs. 12 to 19).

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::cost_model {

struct RemotePrefixSetting {
  double weight_bytes = 0;           // M
  double cache_bytes = 0;            // KV_full of a request
  double memory_bytes = 0;           // of one accelerator
  double memory_bandwidth = 0;       // BW_hbm, bytes/s
  double local_link_bandwidth = 0;   // BW_h, store to local pool
  double remote_link_bandwidth = 0;  // BW_l, store to remote pool
  int64_t local_gpus = 1;            // G_L
  int64_t remote_gpus = 4;           // G_R
  double kept = 1;                   // c
  double acceptance = 0;             // gamma
  int64_t draft_length = 1;          // x
  int64_t output_tokens = 1;         // K
  /// Bytes that streaming sends after the compressed cache, where they are known; else (1 - c) KV_full.
  std::optional<double> rest_bytes;
  /// One device computes for both pools, whose computing then adds up. Not in the paper.
  bool one_device = false;
};

/// Time that a decoding slot is charged while a request decodes.
enum class SlotTime {
  paper,      // T_tok as in Eq. 12, which is a request's share of an iteration
  wallclock,  // the whole iteration, B T_tok(B)
};

enum class Path {
  local,                    // B1
  remote,                   // B2
  verify_only_cached,       // P1, the full cache stays on the local pool between rounds
  verify_only_stateless,    // P1, it is sent again for each round
  verify_streaming_cached,  // P2, the rest of the cache streams to the remote pool meanwhile
  verify_streaming_stateless,
};
inline constexpr int64_t path_count = 6;
inline constexpr std::array<std::string_view, path_count> path_names = {"local",
                                                                        "remote",
                                                                        "verify_only_cached",
                                                                        "verify_only_stateless",
                                                                        "verify_streaming_cached",
                                                                        "verify_streaming_stateless"};
inline constexpr std::array<Path, path_count> all_paths = {Path::local,
                                                           Path::remote,
                                                           Path::verify_only_cached,
                                                           Path::verify_only_stateless,
                                                           Path::verify_streaming_cached,
                                                           Path::verify_streaming_stateless};
inline constexpr std::array<Path, 2> plain_paths = {Path::local, Path::remote};
/// One of path_names; throws UserError naming `place`.
[[nodiscard]] Path path_named(const std::string& name, const std::string& place);

/// Seconds of one request on one pool.
struct PoolCost {
  double network = 0;
  double compute = 0;
  double slot = 0;  // a memory slot's time
};
struct PathCost {
  PoolCost local, remote;
};

/// B_max = floor((memory - M) / KV_full); throws UserError when it is 0.
[[nodiscard]] int64_t max_requests(const RemotePrefixSetting& setting);
/// T_tok(B), Eq. 12: one token's share of an iteration with `batch` requests.
[[nodiscard]] double token_seconds(const RemotePrefixSetting& setting, double batch);
/// A request's costs on `path` when the pools hold `local_batch` and `remote_batch` requests each.
[[nodiscard]] PathCost path_cost(const RemotePrefixSetting& setting, Path path, double local_batch, double remote_batch,
                                 SlotTime slot_time = SlotTime::paper);

struct RemotePrefixRates {
  std::array<double, path_count> requests_per_second{};  // by Path
  double tokens_per_second = 0;                          // Eq. 19
  double local_batch = 0;                                // occupancy that the costs were evaluated at
  double remote_batch = 0;
};

/// The best rates of these paths when both pools are as full as they can be, t = T_tok(B_max).
[[nodiscard]] RemotePrefixRates best_rates(const RemotePrefixSetting& setting, std::span<const Path> paths = all_paths,
                                           SlotTime slot_time = SlotTime::paper);
/// The best rates at the occupancies that they imply themselves: a fixed point, damped by half, from B_max down;
/// stops at a relative change of 1e-6 or after 100 rounds.
[[nodiscard]] RemotePrefixRates best_rates_at_occupancy(const RemotePrefixSetting& setting,
                                                        std::span<const Path> paths = all_paths,
                                                        SlotTime slot_time = SlotTime::paper);

/// The path of each of so many requests, in order of arrival: always the one that is furthest behind its share of the
/// rates. Throws UserError when no path serves any.
[[nodiscard]] std::vector<Path> share_out(const RemotePrefixRates& rates, int64_t requests);

}  // namespace kvarena::cost_model
