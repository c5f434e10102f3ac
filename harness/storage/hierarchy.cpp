#include "harness/storage/hierarchy.h"

#include <algorithm>

#include "harness/storage/disk_storage.h"

namespace kvarena::storage {
namespace {

std::unique_ptr<Storage> make_storage(const TierSettings& settings) {
  if (settings.memory) return settings.memory(settings.capacity_bytes);
  if (settings.tier != Tier::disk) return std::make_unique<MemoryStorage>(settings.tier, settings.capacity_bytes);
  return std::make_unique<DiskStorage>(settings.folder, settings.capacity_bytes,
                                       settings.direct_access ? DiskAccess::direct : DiskAccess::buffered);
}

}  // namespace

std::vector<TierSettings> usual_tiers() { return {{.tier = Tier::host, .link = link_named("real", "host tier")}}; }

Hierarchy::Hierarchy(const std::vector<TierSettings>& tiers) {
  for (const TierSettings& settings : tiers) {
    tiers_[settings.tier] = {.storage = make_storage(settings),
                             .load = std::make_unique<Link>(settings.link, settings.fault),
                             .offload = std::make_unique<Link>(settings.link)};
  }
}

bool Hierarchy::emulated() const {
  return std::ranges::any_of(tiers_, [](const auto& tier) { return tier.second.load->spec().emulated(); });
}

const Hierarchy::Behind& Hierarchy::behind(Tier tier) const {
  const auto found = tiers_.find(tier);
  if (found == tiers_.end()) {
    fail({.place = "memory tiers",
          .found = std::string("no ") + to_string(tier) + " tier",
          .expected = "one",
          .action = "describe it in the engine's settings"});
  }
  return found->second;
}

Storage& Hierarchy::storage(Tier tier) const { return *behind(tier).storage; }

Link& Hierarchy::load(Tier tier) const { return *behind(tier).load; }

Link& Hierarchy::offload(Tier tier) const { return *behind(tier).offload; }

}  // namespace kvarena::storage
