#pragma once
// What of a layer stands in front of its runs on the device: packed entries, attended as they lie or put together
// first, or a few that others are brought beside.

#include <string>
#include <variant>

#include "harness/device/device_pinned_segment.h"
#include "harness/device/device_packed_segment.h"
#include "harness/device/device_dequant_segment.h"

namespace kvarena::device {

using DeviceSegment = std::variant<DevicePackedSegment, DeviceDequantSegment, DevicePinnedSegment>;

/// Why no front can hold a segment, in words; empty when one can.
[[nodiscard]] std::string unsupported_reason(const Segment& segment, const LayerShape& shape);
/// Of a segment that one can hold; what it uploads is there after uploads.finish().
[[nodiscard]] DeviceSegment make_device_segment(const Segment& segment, const LayerShape& shape, DequantShared& shared,
                                    UploadBatch& uploads);
/// Whether it is a copy of this segment, as of some time.
[[nodiscard]] bool mirrors_segment(const DeviceSegment& front, const Segment& segment);
/// Uploads what the segment has got since; whether there was anything.
bool follow(DeviceSegment& front, const Segment& segment, UploadBatch& uploads);
[[nodiscard]] int64_t bytes_of(const DeviceSegment& front);

/// Whether only passes that choose may attend to a layer that holds it: the rest of its entries is brought by choices.
[[nodiscard]] bool wants_choices(const Segment& segment);

/// The number by which fronts know a segment (of one that a front can hold).
[[nodiscard]] uint64_t mirror_version(const Segment& segment);

}  // namespace kvarena::device
