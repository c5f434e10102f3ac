#include "harness/device/packed_side.h"

namespace kvarena::device {
namespace {

using kernels::PackedEntries;

/// Bytes of one side of one head.
struct SideBytes {
  int64_t codes, meta;
};

SideBytes bytes_of(const PackedEntries& side, int64_t entries) {
  const kernels::QuantFormat& format = side.format;
  return {.codes = kernels::packed_code_dwords(entries, side.head_dim, format.bits) * int64_t{sizeof(uint32_t)},
          .meta = packed_meta_count(side.kind, entries, side.head_dim, format) * meta_size(format)};
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

}  // namespace

void* MemoryPieces::take(int64_t bytes) {
  constexpr int64_t kAligned = 256;
  char* const at = base_ == nullptr || bytes == 0 ? nullptr : base_ + taken_;
  taken_ += (bytes + kAligned - 1) / kAligned * kAligned;
  return at;
}

void MemoryPieces::place(PackedEntries& side, int64_t entries) {
  const SideBytes bytes = bytes_of(side, entries);
  side.codes = static_cast<uint32_t*>(take(bytes.codes));
  side.scale = static_cast<uint16_t*>(take(stores_scale(side.format) ? bytes.meta : 0));
  side.zero = static_cast<uint16_t*>(take(stores_zero(side.format) ? bytes.meta : 0));
  side.format.codebook = static_cast<float*>(take(codebook_bytes(side.format)));
}

void upload_packed(const PackedEntries& to, const PackedEntries& from, int64_t before, int64_t after,
                   UploadBatch& uploads) {
  if (before == after) return;
  const SideBytes begin = settled_bytes(from, before), end = bytes_of(from, after);
  uploads.add(to.codes, from.codes, begin.codes, end.codes);
  uploads.add(to.scale, from.scale, begin.meta, end.meta);
  uploads.add(to.zero, from.zero, begin.meta, end.meta);
  if (before > 0) return;
  uploads.add(const_cast<float*>(to.format.codebook), from.format.codebook, 0, codebook_bytes(from.format));
}

void PackedSide::follow(const PackedEntries& from, int64_t before, int64_t after, UploadBatch& uploads) {
  if (after > room_) {
    uploads.finish();  // what is on its way goes to the old place
    room_ = grown_capacity(after);
    before = 0;
    MemoryPieces nowhere(nullptr);
    nowhere.place(entries_, room_);
    memory_ = kernels::CudaBuffer(nowhere.taken());
    MemoryPieces pieces(static_cast<char*>(memory_.data()));
    pieces.place(entries_, room_);
  }
  upload_packed(entries_, from, before, after, uploads);
}

}  // namespace kvarena::device
