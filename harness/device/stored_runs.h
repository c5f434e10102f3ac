#pragma once
// Stored numbers of a segment of the host's, on the device as they lie there.

#include <cstdint>
#include <vector>

#include "harness/cache/attention_plan.h"
#include "harness/device/upload_batch.h"
#include "kernels/cells/cells_cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/entry_rows/entry_rows_cuda.h"

namespace kvarena::device {

/// A copy of an item's runs: codes with their scales, zeros and codebooks, then cells. Entries only come behind others,
/// and codes take the place of the oldest cells, so a copy follows its item by what is new, and by the cells where some
/// were packed. Layers may share one.
class StoredRuns {
 public:
  /// `like`: the same formats, in heads that hold equally many entries.
  explicit StoredRuns(const AttentionItem& like);

  /// Takes over what the item has got since, there after uploads.finish(); whether there was anything.
  bool follow(const AttentionItem& item, UploadBatch& uploads);
  /// [kv_heads], for attend_cuda(); until the next follow().
  [[nodiscard]] const std::vector<kernels::HeadRun>& runs() const { return runs_; }
  [[nodiscard]] int64_t entries() const { return held_.entries; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  /// Entries `first` and those behind it, as numbers; the channels that there are, one head's behind the other's.
  void load(kernels::CellKind kind, int64_t first, const kernels::EntryRows& to, kernels::CudaScratch& scratch,
            kernels::CudaStream stream) const;
  [[nodiscard]] int64_t bytes() const { return memory_.bytes(); }

 private:
  struct Counts {
    int64_t entries = 0, packed_keys = 0, packed_values = 0;
    bool operator==(const Counts&) const = default;
  };
  void make_room(const Counts& counts, UploadBatch& uploads);
  /// Points everything into `base`, or nowhere; returns the bytes that takes.
  int64_t lay_out(char* base);
  [[nodiscard]] int64_t key_bytes(int64_t entries) const;
  [[nodiscard]] int64_t value_bytes(int64_t entries) const;
  /// First entry, counted from the first one in cells, of those that cells of the item hold and these do not.
  [[nodiscard]] int64_t first_new(int64_t packed_before, int64_t packed) const;

  DType dtype_;
  int64_t key_channels_, value_channels_;       // of each head that cells hold
  std::vector<kernels::PackedEntries> packed_;  // [kv_heads][keys, values], empty where nothing is packed
  std::vector<kernels::HeadRun> runs_;          // [kv_heads], which point to them
  Counts held_;
  int64_t code_room_ = 0, key_room_ = 0, value_room_ = 0;  // entries: of codes, and of the cells of each side
  kernels::CudaBuffer memory_;
};

}  // namespace kvarena::device
