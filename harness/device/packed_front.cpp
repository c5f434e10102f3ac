#include "harness/device/packed_front.h"

#include <fmt/format.h>

namespace kvarena::device {
namespace {

using kernels::CellKind;
using kernels::PackedEntries;

/// Of one side of one head.
struct SideBytes {
  int64_t codes, meta;
};

SideBytes bytes_of(const PackedEntries& side, int64_t entries) {
  const kernels::QuantFormat& format = side.format;
  return {.codes = kernels::packed_code_dwords(entries, side.head_dim, format.bits) * int64_t{sizeof(uint32_t)},
          .meta = packed_meta_count(side.kind, entries, side.head_dim, format) * int64_t{sizeof(uint16_t)}};
}

/// In front of everything that packing more than `entries` writes: whole cells of codes, whole groups.
SideBytes settled_bytes(const PackedEntries& side, int64_t entries) {
  const int64_t cells = entries / kernels::kCell * kernels::kCell;
  const int64_t group = side.format.group_size;
  const int64_t grouped = groups_in_tokens(side.kind, side.format) ? cells : entries / group * group;
  return {.codes = bytes_of(side, cells).codes, .meta = bytes_of(side, grouped).meta};
}

int64_t codebook_bytes(const kernels::QuantFormat& format) {
  return format.levels == kernels::Levels::codebook ? (int64_t{1} << format.bits) * int64_t{sizeof(float)} : 0;
}

/// Entries before .. after-1 of one side of a head.
void upload(const PackedEntries& to, const PackedEntries& from, int64_t before, int64_t after, SmallUploads& uploads) {
  if (before == after) return;
  const SideBytes begin = settled_bytes(from, before), end = bytes_of(from, after);
  uploads.add(to.codes, from.codes, begin.codes, end.codes);
  uploads.add(to.scale, from.scale, begin.meta, end.meta);
  uploads.add(to.zero, from.zero, begin.meta, end.meta);
  if (before > 0) return;
  uploads.add(const_cast<float*>(to.format.codebook), from.format.codebook, 0, codebook_bytes(from.format));
}

}  // namespace

std::string PackedFront::cannot_hold(const Segment& segment) {
  const auto* quantized = dynamic_cast<const QuantizedSegment*>(&segment);
  if (quantized == nullptr) return fmt::format("entries in {} form that is a method's own", to_string(segment.form()));
  if (quantized->shape().window > 0) return "packed entries under a sliding window";
  return {};
}

PackedFront::PackedFront(const QuantizedSegment& segment, HeadMapStore& maps, SmallUploads& uploads)
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

int64_t PackedFront::lay_out(char* base) {
  constexpr int64_t kAligned = 256;
  int64_t taken = 0;
  const auto piece = [&](int64_t bytes) -> void* {
    char* const at = base == nullptr || bytes == 0 ? nullptr : base + taken;
    taken += (bytes + kAligned - 1) / kAligned * kAligned;
    return at;
  };
  for (size_t h = 0; h < runs_.size(); ++h) {
    for (PackedEntries* side : {&keys_[h], &values_[h]}) {
      const SideBytes bytes = bytes_of(*side, room_);
      side->codes = static_cast<uint32_t*>(piece(bytes.codes));
      side->scale = static_cast<uint16_t*>(piece(stores_scale(side->format) ? bytes.meta : 0));
      side->zero = static_cast<uint16_t*>(piece(stores_zero(side->format) ? bytes.meta : 0));
      side->format.codebook = static_cast<float*>(piece(codebook_bytes(side->format)));
    }
    runs_[h].values = piece(kernels::cell_bytes(recent_room_, recent_.head_dim, recent_.dtype));
  }
  return taken;
}

/// Half again as much, so that what grows step by step moves seldom. What was uploaded is forgotten.
void PackedFront::make_room(int64_t entries, int64_t recent) {
  constexpr int64_t kBlock = 256;
  const auto roomy = [](int64_t n) { return (n + n / 2 + kBlock - 1) / kBlock * kBlock; };
  room_ = roomy(entries);
  recent_room_ = roomy(recent);
  entries_ = packed_values_ = 0;
  memory_ = {};
  memory_.reserve(lay_out(nullptr));
  lay_out(static_cast<char*>(memory_.data()));
}

bool PackedFront::follow(const QuantizedSegment& segment, SmallUploads& uploads) {
  const int64_t entries = segment.entries(0), recent = segment.unpacked_values(), packed = entries - recent;
  if (entries == entries_ && packed == packed_values_) return false;
  if (entries > room_ || recent > recent_room_) make_room(entries, recent);
  for (size_t h = 0; h < runs_.size(); ++h) {
    const auto head = static_cast<int64_t>(h);
    upload(keys_[h], segment.packed(head, CellKind::keys), entries_, entries, uploads);
    upload(values_[h], segment.packed(head, CellKind::values), packed_values_, packed, uploads);
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
