#include "harness/storage/placement/problem.h"

#include <fmt/format.h>

#include "harness/core/error.h"

namespace kvarena::storage {

int64_t bytes_of(const Context& context, const Choice& choice, std::span<const StorageTier> tiers) {
  const Form& form = context.form(choice);
  return tiers[static_cast<size_t>(choice.tier)].ready ? form.ready_bytes : form.bytes;
}

double first_token_seconds(const Form& form, const StorageTier& tier) {
  if (tier.ready) return tier.latency_s + form.ready_s - form.restore_s;
  return tier.latency_s + static_cast<double>(form.bytes) / tier.bandwidth + form.ready_s;
}

double utility(const Context& context, const Choice& choice, std::span<const StorageTier> tiers, double alpha) {
  const Form& form = context.form(choice);
  const double seconds = first_token_seconds(form, tiers[static_cast<size_t>(choice.tier)]);
  return (alpha * form.quality - seconds) * static_cast<double>(context.accesses);
}

std::vector<int64_t> bytes_per_tier(std::span<const Context> contexts, std::span<const StorageTier> tiers) {
  std::vector<int64_t> used(tiers.size(), 0);
  for (const Context& context : contexts)
    used[static_cast<size_t>(context.at.tier)] += bytes_of(context, context.at, tiers);
  return used;
}

int64_t first_tier_for(const Context& context, int64_t form, std::span<const StorageTier> tiers, int64_t first) {
  const auto last = static_cast<int64_t>(tiers.size()) - 1;
  while (first < last &&
         tiers[static_cast<size_t>(first)].capacity < bytes_of(context, {.form = form, .tier = first}, tiers))
    ++first;
  return first;
}

void check_tiers(std::span<const StorageTier> tiers) {
  if (tiers.empty()) fail({.place = "tiers", .found = "none", .expected = "at least one"});
  for (const StorageTier& tier : tiers) {
    const std::string place = fmt::format("tier \"{}\"", tier.name);
    if (tier.bandwidth <= 0) {
      fail({.place = place, .found = fmt::format("{} bytes/s", tier.bandwidth), .expected = "a bandwidth above 0"});
    }
    if (tier.capacity < 0) {
      fail({.place = place, .found = fmt::format("{} bytes", tier.capacity), .expected = "a capacity of at least 0"});
    }
  }
  if (tiers.back().capacity != kUnlimited) {
    fail({.place = fmt::format("tier \"{}\"", tiers.back().name),
          .found = fmt::format("a capacity of {} bytes", tiers.back().capacity),
          .expected = "no limit: what leaves the other tiers must lie somewhere"});
  }
}

}  // namespace kvarena::storage
