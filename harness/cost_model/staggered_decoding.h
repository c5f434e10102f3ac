#pragma once
// Draft-and-verify decoding on one machine whose full caches lie behind a slower link: what an iteration takes, and the
// best batch, draft length and compression. Yao et al. 2026, arXiv:2605.17613, Eq. 3 and Appendix B.1 (Eqs. 5 to 11).

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "harness/cost_model/acceptance.h"

namespace kvarena::cost_model {

struct DecodingMachine {
  double memory_bytes = 0;      // of the accelerator
  double memory_bandwidth = 0;  // bytes/s
  double link_bandwidth = 0;    // bytes/s, from where the full caches lie
};

struct DecodingLoad {
  double weight_bytes = 0;
  double cache_bytes = 0;  // KV_full of one request; all requests are alike
};

/// Charging of a verification's reload.
enum class LinkModel {
  paper,  // Eq. 8 as printed: a reload spread over l iterations divides the link time by l
  /// The bytes that pass in a steady state do not depend on l, and requests whose full cache stays resident hold the
  /// compressed copy that they draft on beside it.
  strict,
};

struct DecodingPlan {
  int64_t resident = 0;   // B_g, requests whose full cache stays on the accelerator
  int64_t offloaded = 0;  // B_c
  int64_t draft_length = 1;
  double kept = 1;                // c: compressed bytes over full bytes
  double acceptance = 0;          // gamma(x, c)
  int64_t reload_iterations = 1;  // l
};

struct DecodingEstimate {
  double average_cache_bytes = 0;  // KV_avg of an offloaded request, Eq. 5
  double used_bytes = 0;           // left side of Eq. 6
  double gpu_seconds = 0;          // Eq. 7
  double link_seconds = 0;         // Eq. 8
  double iteration_seconds = 0;    // Eq. 10
  double tokens_per_second = 0;    // objective of Eq. 11
  bool fits = false;               // Eq. 6
  bool link_serves = false;        // Eq. 9: one reload at a time
};

[[nodiscard]] DecodingEstimate estimate(const DecodingMachine& machine, const DecodingLoad& load,
                                        const DecodingPlan& plan, LinkModel link = LinkModel::paper);

/// Plain decoding with as many full caches as fit. Nothing when not even one does.
struct FullCacheEstimate {
  int64_t requests = 0;
  double iteration_seconds = 0;
  double tokens_per_second = 0;
};
[[nodiscard]] std::optional<FullCacheEstimate> full_cache_estimate(const DecodingMachine& machine,
                                                                   const DecodingLoad& load);

/// Candidates of the optimiser.
struct DecodingChoices {
  std::vector<int64_t> draft_lengths;
  std::vector<double> kept;
  int64_t max_reload_iterations = 8;
};

struct DecodingOptimum {
  DecodingPlan plan;
  DecodingEstimate estimate;
  double speedup = 0;  // over full_cache_estimate; 0 when no full cache fits
};

/// gamma(draft_length, kept).
using Acceptance = std::function<double(int64_t draft_length, double kept)>;

/// Eq. 11: the plan of the most tokens per second over B_c, x, c and l, residents filling the memory left over.
/// Nothing when no plan satisfies Eqs. 6 and 9.
[[nodiscard]] std::optional<DecodingOptimum> best_plan(const DecodingMachine& machine, const DecodingLoad& load,
                                                       const DecodingChoices& choices, const Acceptance& acceptance,
                                                       LinkModel link = LinkModel::paper);

/// Whether the resident requests of `plan` had better decode on their full caches than draft, the offloaded ones
/// drafting either way: by the objective of Eq. 11 with iterations that memory bounds (Eq. 7).
[[nodiscard]] bool residents_should_decode(const DecodingLoad& load, const DecodingPlan& plan);

/// The simplified iteration time of Eq. 3, for `requests` that all reload their whole cache every draft_length steps.
[[nodiscard]] double short_iteration_seconds(const DecodingMachine& machine, const DecodingLoad& load, int64_t requests,
                                             int64_t draft_length, double kept);

}  // namespace kvarena::cost_model
