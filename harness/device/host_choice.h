#pragma once
// A choice on the host, within a device's pass, of what the device attends to.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/cache/packed_segment.h"
#include "harness/device/brought_rows.h"

namespace kvarena::device {

/// What a sequence's rows attend to of a layer. All that is pointed to is valid until the pass is over.
struct LayerChoice {
  /// Ascending entries of the layer's runs, the fresh ones among them, one list a kv head or one a query head, all of
  /// which every row attends to. None: every row attends to what lies before it.
  std::vector<std::span<const int32_t>> entries;
  /// [kv_heads]: of the packed entries these alone; null: all of them.
  const EntryLists* packed = nullptr;
  /// Entries that every row attends to beside them, null for none.
  const EntrySegment* exact = nullptr;
};

/// Who chooses, layer by layer, which entries a sequence's rows attend to. The device waits for it in each.
class HostChoice {
 public:
  virtual ~HostChoice() = default;
  /// rows: what the device computed of the sequence's before the layer's attention; its lse and residual are not yet
  /// there.
  virtual LayerChoice choose(int64_t layer, const LayerRows& rows) = 0;
};

}  // namespace kvarena::device
