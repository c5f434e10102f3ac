#include "harness/device/device_segment.h"

#include <fmt/format.h>

namespace kvarena::device {
namespace {

/// Null where it is another one; no segment is two of them.
template <class T>
const T* as(const Segment& segment) {
  return dynamic_cast<const T*>(&segment);
}

}  // namespace

std::string unsupported_reason(const Segment& segment, const LayerShape& shape) {
  if (wants_choices(segment)) return {};
  if (const auto* restorable = as<Dequantizable>(segment)) return DeviceDequantSegment::cannot_hold(*restorable, shape);
  if (const auto* packed = as<QuantizedSegment>(segment)) return DevicePackedSegment::cannot_hold(*packed);
  return fmt::format("entries in {} form that is a method's own", to_string(segment.form()));
}

bool wants_choices(const Segment& segment) { return as<LowRankSegment>(segment) != nullptr; }

DeviceSegment make_device_segment(const Segment& segment, const LayerShape& shape, DequantShared& shared, UploadBatch& uploads) {
  if (const auto* restorable = as<Dequantizable>(segment)) return DeviceDequantSegment(*restorable, shape, shared, uploads);
  if (const auto* low_rank = as<LowRankSegment>(segment)) return DevicePinnedSegment(*low_rank, uploads);
  return DevicePackedSegment(*as<QuantizedSegment>(segment), shared.maps, uploads);
}

uint64_t mirror_version(const Segment& segment) {
  if (const auto* restorable = as<Dequantizable>(segment)) return restorable->version();
  if (const auto* low_rank = as<LowRankSegment>(segment)) return low_rank->version();
  return as<QuantizedSegment>(segment)->version();
}

bool mirrors_segment(const DeviceSegment& front, const Segment& segment) {
  return std::visit([](const auto& own) { return own.version(); }, front) == mirror_version(segment);
}

bool follow(DeviceSegment& front, const Segment& segment, UploadBatch& uploads) {
  if (auto* restored = std::get_if<DeviceDequantSegment>(&front))
    return segment.entries(0) > restored->entries() && restored->follow(*as<Dequantizable>(segment), uploads);
  if (auto* packed = std::get_if<DevicePackedSegment>(&front)) return packed->follow(*as<QuantizedSegment>(segment), uploads);
  return false;  // what is kept stays as it is
}

int64_t bytes_of(const DeviceSegment& front) {
  return std::visit([](const auto& own) { return own.bytes(); }, front);
}

}  // namespace kvarena::device
