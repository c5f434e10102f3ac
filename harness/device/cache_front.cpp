#include "harness/device/cache_front.h"

#include <fmt/format.h>

namespace kvarena::device {
namespace {

/// Null where it is another one; no segment is two of them.
template <class T>
const T* as(const Segment& segment) {
  return dynamic_cast<const T*>(&segment);
}

}  // namespace

std::string cannot_front(const Segment& segment, const LayerShape& shape) {
  if (wants_choices(segment)) return {};
  if (const auto* restorable = as<Restorable>(segment)) return RestoredFront::cannot_hold(*restorable, shape);
  if (const auto* packed = as<QuantizedSegment>(segment)) return PackedFront::cannot_hold(*packed);
  return fmt::format("entries in {} form that is a method's own", to_string(segment.form()));
}

bool wants_choices(const Segment& segment) { return as<LowRankSegment>(segment) != nullptr; }

CacheFront make_front(const Segment& segment, const LayerShape& shape, RestoreShared& shared, SmallUploads& uploads) {
  if (const auto* restorable = as<Restorable>(segment)) return RestoredFront(*restorable, shape, shared, uploads);
  if (const auto* low_rank = as<LowRankSegment>(segment)) return KeptFront(*low_rank, uploads);
  return PackedFront(*as<QuantizedSegment>(segment), shared.maps, uploads);
}

uint64_t front_version(const Segment& segment) {
  if (const auto* restorable = as<Restorable>(segment)) return restorable->version();
  if (const auto* low_rank = as<LowRankSegment>(segment)) return low_rank->version();
  return as<QuantizedSegment>(segment)->version();
}

bool is_front_of(const CacheFront& front, const Segment& segment) {
  return std::visit([](const auto& own) { return own.version(); }, front) == front_version(segment);
}

bool follow(CacheFront& front, const Segment& segment, SmallUploads& uploads) {
  if (auto* restored = std::get_if<RestoredFront>(&front))
    return segment.entries(0) > restored->entries() && restored->follow(*as<Restorable>(segment), uploads);
  if (auto* packed = std::get_if<PackedFront>(&front)) return packed->follow(*as<QuantizedSegment>(segment), uploads);
  return false;  // what is kept stays as it is
}

int64_t bytes_of(const CacheFront& front) {
  return std::visit([](const auto& own) { return own.bytes(); }, front);
}

}  // namespace kvarena::device
