#include "harness/cost_model/staggered_decoding.h"

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"

namespace kvarena::cost_model {
namespace {

double average_cache_bytes(const DecodingLoad& load, int64_t draft_length, double kept) {  // Eq. 5
  const auto x = static_cast<double>(draft_length);
  return load.cache_bytes * (x * kept + 1) / (x + 1);
}

double resident_request_bytes(const DecodingLoad& load, double kept, LinkModel link) {
  return link == LinkModel::strict ? load.cache_bytes * (1 + kept) : load.cache_bytes;
}

/// The requests that stay resident in what the offloaded ones leave free.
int64_t residents_beside(const DecodingMachine& machine, const DecodingLoad& load, const DecodingPlan& plan,
                         LinkModel link) {
  const double free = machine.memory_bytes - load.weight_bytes -
                      static_cast<double>(plan.offloaded) * average_cache_bytes(load, plan.draft_length, plan.kept);
  return static_cast<int64_t>(std::floor(free / resident_request_bytes(load, plan.kept, link)));
}

}  // namespace

DecodingEstimate estimate(const DecodingMachine& machine, const DecodingLoad& load, const DecodingPlan& plan,
                          LinkModel link) {
  KVARENA_ASSERT(plan.draft_length >= 1 && plan.reload_iterations >= 1, "a plan drafts and reloads");
  const auto x = static_cast<double>(plan.draft_length);
  const auto offloaded = static_cast<double>(plan.offloaded);
  const double requests = static_cast<double>(plan.resident) + offloaded;
  const double spread = link == LinkModel::paper ? static_cast<double>(plan.reload_iterations) : 1.0;

  DecodingEstimate result;
  result.average_cache_bytes = average_cache_bytes(load, plan.draft_length, plan.kept);
  result.used_bytes = load.weight_bytes +
                      static_cast<double>(plan.resident) * resident_request_bytes(load, plan.kept, link) +
                      offloaded * result.average_cache_bytes;
  result.gpu_seconds = (load.weight_bytes + requests * result.average_cache_bytes) / machine.memory_bandwidth;
  result.link_seconds = offloaded * (1 - plan.kept) * load.cache_bytes / ((x + 1) * machine.link_bandwidth * spread);
  result.iteration_seconds = std::max(result.gpu_seconds, result.link_seconds);
  result.tokens_per_second = requests * (plan.acceptance * x + 1) / (x + 1) / result.iteration_seconds;
  result.fits = result.used_bytes <= machine.memory_bytes;
  result.link_serves = offloaded * static_cast<double>(plan.reload_iterations) <= x + 1;
  return result;
}

std::optional<FullCacheEstimate> full_cache_estimate(const DecodingMachine& machine, const DecodingLoad& load) {
  const auto requests = static_cast<int64_t>(std::floor((machine.memory_bytes - load.weight_bytes) / load.cache_bytes));
  if (requests < 1) return std::nullopt;
  const auto batch = static_cast<double>(requests);
  const double seconds = (load.weight_bytes + batch * load.cache_bytes) / machine.memory_bandwidth;
  return FullCacheEstimate{.requests = requests, .iteration_seconds = seconds, .tokens_per_second = batch / seconds};
}

std::optional<DecodingOptimum> best_plan(const DecodingMachine& machine, const DecodingLoad& load,
                                         const DecodingChoices& choices, const Acceptance& acceptance, LinkModel link) {
  std::optional<DecodingOptimum> best;
  const auto try_plan = [&](const DecodingPlan& plan) {
    const DecodingEstimate found = estimate(machine, load, plan, link);
    if (!found.fits || !found.link_serves) return;
    if (!best || found.tokens_per_second > best->estimate.tokens_per_second) best = {.plan = plan, .estimate = found};
  };
  for (const double kept : choices.kept) {
    for (const int64_t draft_length : choices.draft_lengths) {
      DecodingPlan plan{.draft_length = draft_length, .kept = kept, .acceptance = acceptance(draft_length, kept)};
      for (plan.reload_iterations = 1; plan.reload_iterations <= choices.max_reload_iterations;
           ++plan.reload_iterations) {
        const int64_t most = (draft_length + 1) / plan.reload_iterations;  // Eq. 9
        for (plan.offloaded = 0; plan.offloaded <= most; ++plan.offloaded) {
          plan.resident = residents_beside(machine, load, plan, link);
          if (plan.resident < 0) break;
          if (plan.resident + plan.offloaded > 0) try_plan(plan);
        }
      }
    }
  }
  if (best) {
    const std::optional<FullCacheEstimate> full = full_cache_estimate(machine, load);
    if (full) best->speedup = best->estimate.tokens_per_second / full->tokens_per_second;
  }
  return best;
}

bool residents_should_decode(const DecodingLoad& load, const DecodingPlan& plan) {
  const auto x = static_cast<double>(plan.draft_length);
  const auto resident = static_cast<double>(plan.resident), offloaded = static_cast<double>(plan.offloaded);
  const double tokens = (plan.acceptance * x + 1) / (x + 1);  // of a request that drafts, an iteration
  const double drafting = average_cache_bytes(load, plan.draft_length, plan.kept);
  const double all_draft = (resident + offloaded) * tokens / (load.weight_bytes + (resident + offloaded) * drafting);
  const double some_decode =
      (resident + offloaded * tokens) / (load.weight_bytes + resident * load.cache_bytes + offloaded * drafting);
  return some_decode > all_draft;
}

double short_iteration_seconds(const DecodingMachine& machine, const DecodingLoad& load, int64_t requests,
                               int64_t draft_length, double kept) {
  const double caches = static_cast<double>(requests) * load.cache_bytes;
  const auto x = static_cast<double>(draft_length);
  return std::max((load.weight_bytes + caches * (kept + 1 / x)) / machine.memory_bandwidth,
                  caches / (x * machine.link_bandwidth));
}

}  // namespace kvarena::cost_model
