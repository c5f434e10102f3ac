#pragma once
// A choice on the host, within a device's pass, of what the device attends to.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/cache/packed_segment.h"
#include "harness/device/downloaded_rows.h"
#include "kernels/attention/attention.h"

namespace kvarena::device {

/// Entries in the host's memory that go up for one layer of one pass, in the cache's type.
struct ExtraRuns {
  std::vector<kernels::HeadRun> runs;  // [kv_heads], without an index
  /// [rows, q_heads, head_dim] what attends to them in place of the layer's queries; null: those.
  const float* queries = nullptr;
  int64_t first_row = 0;  // of those that see any of them
  bool causal = false;    // the last entries belong to these rows in order
};

/// What a sequence's rows attend to of a layer. All that is pointed to is valid until the pass is over.
struct AttentionSelection {
  /// Ascending entries of the layer's runs, the fresh ones among them, one list a kv head or one a query head, all of
  /// which every row attends to. None: every row attends to what lies before it.
  std::vector<std::span<const int32_t>> entries;
  /// [kv_heads] runs of the host's that take the place of the layer's own; none: these. Only where entries are listed.
  std::vector<kernels::HeadRun> runs;
  /// Of its own entries a row sees the last so many up to its own; 0: as the model has it.
  int64_t window = 0;
  /// [kv_heads]: of the packed entries these alone; null: all of them.
  const EntryLists* packed = nullptr;
  /// What is attended to beside all that.
  std::vector<ExtraRuns> extra;
};

/// Who chooses, layer by layer, which entries a sequence's rows attend to. The device waits for it in each.
class HostSelector {
 public:
  virtual ~HostSelector() = default;
  /// rows: what the device computed of the sequence's before the layer's attention; its lse and residual are not yet
  /// there.
  virtual AttentionSelection choose(int64_t layer, const LayerRows& rows) = 0;
};

}  // namespace kvarena::device
