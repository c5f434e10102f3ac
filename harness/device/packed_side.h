#pragma once
// Codes, scales and zeros of one side of one head, on their way to the device.

#include <cstdint>

#include "harness/device/upload_batch.h"
#include "kernels/quantize/quantize.h"

namespace kvarena::device {

/// Half again as much and whole blocks: what grows step by step moves seldom.
[[nodiscard]] constexpr int64_t grown_capacity(int64_t entries) {
  constexpr int64_t kBlock = 256;
  return (entries + entries / 2 + kBlock - 1) / kBlock * kBlock;
}

/// Parts of one piece of memory, or how much they will take while there is none.
class MemoryPieces {
 public:
  explicit MemoryPieces(char* base) : base_(base) {}
  [[nodiscard]] void* take(int64_t bytes);
  /// Points `side` to memory for `entries` entries and its codebook.
  void place(kernels::PackedEntries& side, int64_t entries);
  [[nodiscard]] int64_t taken() const { return taken_; }

 private:
  char* base_;
  int64_t taken_ = 0;
};

/// Uploads what packing entries before .. after-1 has written, and with the first ones the codebook.
void upload_packed(const kernels::PackedEntries& to, const kernels::PackedEntries& from, int64_t before, int64_t after,
                   UploadBatch& uploads);

/// A copy with memory of its own.
class PackedSide {
 public:
  /// `like`: the same format.
  explicit PackedSide(const kernels::PackedEntries& like) : entries_(like) {}
  /// Takes over entries before .. after-1 of `from`; there after uploads.finish().
  void follow(const kernels::PackedEntries& from, int64_t before, int64_t after, UploadBatch& uploads);
  [[nodiscard]] const kernels::PackedEntries& entries() const { return entries_; }
  [[nodiscard]] int64_t bytes() const { return memory_.bytes(); }

 private:
  kernels::PackedEntries entries_;
  kernels::CudaBuffer memory_;
  int64_t room_ = 0;  // entries
};

}  // namespace kvarena::device
