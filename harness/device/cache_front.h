#pragma once
// What of a layer stands in front of its runs on the device: packed entries, attended as they lie or put together
// first, or a few that others are brought beside.

#include <string>
#include <variant>

#include "harness/device/kept_front.h"
#include "harness/device/packed_front.h"
#include "harness/device/restored_front.h"

namespace kvarena::device {

using CacheFront = std::variant<PackedFront, RestoredFront, KeptFront>;

/// Why no front can hold a segment, in words; empty when one can.
[[nodiscard]] std::string cannot_front(const Segment& segment, const LayerShape& shape);
/// Of a segment that one can hold; what it uploads is there after uploads.finish().
[[nodiscard]] CacheFront make_front(const Segment& segment, const LayerShape& shape, RestoreShared& shared,
                                    SmallUploads& uploads);
/// Whether it is a copy of this segment, as of some time.
[[nodiscard]] bool is_front_of(const CacheFront& front, const Segment& segment);
/// Uploads what the segment has got since; whether there was anything.
bool follow(CacheFront& front, const Segment& segment, SmallUploads& uploads);
[[nodiscard]] int64_t bytes_of(const CacheFront& front);

/// Whether only passes that choose may attend to a layer that holds it: the rest of its entries is brought by choices.
[[nodiscard]] bool wants_choices(const Segment& segment);

/// The number by which fronts know a segment (of one that a front can hold).
[[nodiscard]] uint64_t front_version(const Segment& segment);

}  // namespace kvarena::device
