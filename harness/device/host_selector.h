#pragma once
// A choice on the host, within a device's pass, of what the device attends to.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/device/downloaded_rows.h"
#include "kernels/attention/attention.h"

namespace kvarena::device {

/// Entries in the host's memory that one layer of one pass attends to, in the cache's type. Those that the pass before
/// attended to lie on the device already (DeviceSlots).
struct ExtraRuns {
  std::vector<kernels::HeadRun> runs;  // [kv_heads], without an index
  /// Source of the entries, and [kv_heads] where each stands in it: an entry is the one that is equal in both.
  uint64_t source = 0;
  std::vector<std::vector<int32_t>> positions;
  bool attended = true;  // else they are to stay on the device all the same
  int64_t fresh = 0;     // entries of the pass itself that follow each run: the device has them
  /// [kv_heads] or [q_heads] ascending entries, fresh ones too, these alone; empty: all of them.
  std::vector<std::span<const int32_t>> lists;
  /// [rows, q_heads, head_dim] what attends to them in place of the layer's queries; null: those.
  const float* queries = nullptr;
  int64_t first_row = 0;  // of those that see any of them
  bool causal = false;    // the last entries belong to these rows in order
};

/// The part of a segment in front of the layer's runs that is attended to.
struct FrontSelection {
  bool attended = true;
  bool codes_alone = false;                       // stored numbers without the steps of their program
  std::vector<std::span<const int32_t>> lists{};  // [kv_heads] ascending entries, these alone; empty: all of them
};

/// The entries of a layer that a sequence's rows attend to. All that is pointed to is valid until the pass is over.
struct AttentionSelection {
  /// Whether rows attend to the layer's own runs.
  bool own = true;
  /// Ascending entries of these, the fresh ones among them, one list a kv head or one a query head, all of which every
  /// row attends to. None: every row attends to what lies before it.
  std::vector<std::span<const int32_t>> entries;
  std::vector<std::vector<int32_t>> joined;  // the memory of `entries`
  /// Own entries that a row sees, the last ones up to its own; 0: as the model has it.
  int64_t window = 0;
  /// By the order of the layer's segments in front of its runs; those that are not named are attended to.
  std::vector<FrontSelection> fronts;
  /// Entries from the host beside all that.
  std::vector<ExtraRuns> extra;
};

/// Chooses, layer by layer, which entries a sequence's rows attend to.
class HostSelector {
 public:
  virtual ~HostSelector() = default;
  /// Whether choose() looks at no rows: it gets none, and the device does not wait for it.
  [[nodiscard]] virtual bool known() const = 0;
  /// rows: what the device computed of the sequence's before the layer's attention; its lse and residual are not yet
  /// there.
  virtual AttentionSelection choose(int64_t layer, const LayerRows& rows) = 0;
};

}  // namespace kvarena::device
