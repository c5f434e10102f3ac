#pragma once
// The tiers of one machine and the links to its device, shared by all requests.

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "harness/storage/link.h"
#include "harness/storage/storage.h"

namespace kvarena::storage {

/// Makes a tier's memory, of so many bytes.
using MemoryMaker = std::function<std::unique_ptr<Storage>(int64_t capacity)>;

/// One tier behind the device.
struct TierSettings {
  Tier tier = Tier::host;
  int64_t capacity_bytes = kUnlimited;
  LinkSpec link;                 // between the tier and the device, each direction by itself
  std::filesystem::path folder;  // folder of the disk tier
  bool direct_access = false;    // disk tier: bypass the page cache
  LinkFault fault;               // called before each load, for tests
  MemoryMaker memory;            // of a tier that is no disk's; empty: main memory
};

/// Main memory without a limit, behind the link that is really there.
[[nodiscard]] std::vector<TierSettings> usual_tiers();

/// Thread-safe. Must outlive the transfers asked of its links, but not the blocks.
class Hierarchy {
 public:
  /// Throws UserError when the disk tier's folder cannot be made.
  explicit Hierarchy(const std::vector<TierSettings>& tiers);

  /// Whether a link takes the time that its spec says.
  [[nodiscard]] bool emulated() const;
  [[nodiscard]] bool has(Tier tier) const { return tiers_.contains(tier); }
  /// Memory of a tier. This and the two below throw UserError for a tier that is absent.
  [[nodiscard]] Storage& storage(Tier tier) const;
  /// Link from the tier to the device.
  [[nodiscard]] Link& load(Tier tier) const;
  /// Link from the device to the tier.
  [[nodiscard]] Link& offload(Tier tier) const;

 private:
  struct Behind {
    std::unique_ptr<Storage> storage;
    std::unique_ptr<Link> load;
    std::unique_ptr<Link> offload;
  };
  [[nodiscard]] const Behind& behind(Tier tier) const;

  std::map<Tier, Behind> tiers_;
};

using HierarchyPtr = std::shared_ptr<const Hierarchy>;

}  // namespace kvarena::storage
