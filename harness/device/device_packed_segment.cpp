#include "harness/device/device_packed_segment.h"

#include "harness/device/packed_side.h"

namespace kvarena::device {

using kernels::CellKind;
using kernels::PackedEntries;

std::string DevicePackedSegment::cannot_hold(const QuantizedSegment& segment) {
  if (segment.shape().window > 0) return "packed entries under a sliding window";
  return {};
}

DevicePackedSegment::DevicePackedSegment(const QuantizedSegment& segment, HeadMapStore& maps, UploadBatch& uploads)
    : version_(segment.version()),
      key_maps_(
          maps.of(segment.key_transform(), HeadMaps::Use::queries, segment.shape().kv_heads, segment.shape().head_dim)),
      value_maps_(maps.of(segment.value_transform(), HeadMaps::Use::attended, segment.shape().kv_heads,
                          segment.shape().head_dim)),
      recent_(segment.recent_values(0)) {
  for (int64_t h = 0; h < segment.shape().kv_heads; ++h) {
    keys_.push_back(segment.packed(h, CellKind::keys));
    values_.push_back(segment.packed(h, CellKind::values));
  }
  for (size_t h = 0; h < keys_.size(); ++h) runs_.push_back({.packed_keys = &keys_[h], .packed_values = &values_[h]});
  lay_out(nullptr);
  follow(segment, uploads);
}

int64_t DevicePackedSegment::lay_out(char* base) {
  MemoryPieces pieces(base);
  for (size_t h = 0; h < runs_.size(); ++h) {
    for (PackedEntries* side : {&keys_[h], &values_[h]}) pieces.place(*side, room_);
    runs_[h].values = pieces.take(kernels::cell_bytes(recent_room_, recent_.head_dim, recent_.dtype));
  }
  return pieces.taken();
}

/// What was uploaded is forgotten.
void DevicePackedSegment::make_room(int64_t entries, int64_t recent) {
  room_ = grown_capacity(entries);
  recent_room_ = grown_capacity(recent);
  entries_ = packed_values_ = 0;
  memory_ = {};
  memory_.reserve(lay_out(nullptr));
  lay_out(static_cast<char*>(memory_.data()));
}

bool DevicePackedSegment::follow(const QuantizedSegment& segment, UploadBatch& uploads) {
  const int64_t entries = segment.entries(0), recent = segment.unpacked_values(), packed = entries - recent;
  if (entries == entries_ && packed == packed_values_) return false;
  if (entries > room_ || recent > recent_room_) make_room(entries, recent);
  for (size_t h = 0; h < runs_.size(); ++h) {
    const auto head = static_cast<int64_t>(h);
    upload_packed(keys_[h], segment.packed(head, CellKind::keys), entries_, entries, uploads);
    upload_packed(values_[h], segment.packed(head, CellKind::values), packed_values_, packed, uploads);
    const kernels::Cells values = segment.recent_values(head);
    uploads.add(const_cast<void*>(runs_[h].values), values.data, 0,
                kernels::cell_bytes(recent, values.head_dim, values.dtype));
    runs_[h].entries = entries;
    runs_[h].packed_key_count = entries;
    runs_[h].packed_value_count = packed;
  }
  entries_ = entries;
  packed_values_ = packed;
  return true;
}

}  // namespace kvarena::device
