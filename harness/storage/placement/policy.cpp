#include "harness/storage/placement/policy.h"

#include <fmt/format.h>

#include "harness/core/error.h"

namespace kvarena::storage {

Choice Policy::first(const Context& context, std::span<const StorageTier> tiers) const {
  return {.form = 0, .tier = first_tier_for(context, 0, tiers)};
}

Step VictimPolicy::make_room(const View& view, int64_t tier) const {
  const Context* victim = nullptr;
  for (const Context& context : view.contexts) {
    if (context.at.tier != tier) continue;
    if (victim == nullptr || leaves_before(context, *victim)) victim = &context;
  }
  KVARENA_ASSERT(victim != nullptr, fmt::format("tier {} is over its capacity and empty", tier));
  const int64_t below = first_tier_for(*victim, victim->at.form, view.tiers, tier + 1);
  return {.context = static_cast<size_t>(victim - view.contexts.data()),
          .to = {.form = victim->at.form, .tier = below}};
}

void settle(const Policy& policy, std::span<const StorageTier> tiers, std::span<Context> contexts) {
  const View view{.tiers = tiers, .contexts = contexts};
  for (size_t tier = 0; tier + 1 < tiers.size(); ++tier) {
    int64_t used = bytes_per_tier(contexts, tiers)[tier];
    while (used > tiers[tier].capacity) {
      const Step step = policy.make_room(view, static_cast<int64_t>(tier));
      Context& context = contexts[step.context];
      const bool stays = step.to.tier == context.at.tier;
      const int64_t freed = bytes_of(context, context.at, tiers) - (stays ? bytes_of(context, step.to, tiers) : 0);
      KVARENA_ASSERT(context.at.tier == static_cast<int64_t>(tier) && step.to.tier >= context.at.tier && freed >= 0 &&
                         (freed > 0 || !stays),
                     fmt::format("a step from tier {} to {} frees {} bytes", tier, step.to.tier, freed));
      used -= freed;
      context.at = step.to;
    }
  }
  while (const auto step = policy.use_room(view)) contexts[step->context].at = step->to;
}

void place_anew(const Policy& policy, std::span<const StorageTier> tiers, std::span<Context> contexts) {
  for (Context& context : contexts) context.at = policy.first(context, tiers);
  settle(policy, tiers, contexts);
}

}  // namespace kvarena::storage
