#pragma once
// Entries beside a layer's own that views show.

#include <vector>

#include "harness/cache/segment.h"

namespace kvarena {

/// Says, of a layer's index (LayerCache::index), what a copy on a device need not get again of the segments that views
/// show beside the layer's own.
class EntrySource {
 public:
  virtual ~EntrySource() = default;
  /// A number, as new_version() gives them: in all segments of this number entries at equal positions are equal for
  /// good. 0: the segment stands for itself, and only appends under one version.
  [[nodiscard]] virtual uint64_t source_of(const Segment& /*shown*/) const { return 0; }
  /// Segments that stay on the device for later steps, shown in this one or not.
  [[nodiscard]] virtual std::vector<const Segment*> held() const { return {}; }
};

}  // namespace kvarena
