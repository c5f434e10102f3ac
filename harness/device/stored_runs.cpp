#include "harness/device/stored_runs.h"

#include <algorithm>

#include "harness/cache/dequantize.h"
#include "harness/device/packed_side.h"
#include "kernels/quantize/quantize_cuda.h"

namespace kvarena::device {

using kernels::CellKind;
using kernels::HeadRun;

StoredRuns::StoredRuns(const AttentionItem& like)
    : dtype_(like.dtype),
      key_channels_(stored_channels(like, CellKind::keys)),
      value_channels_(stored_channels(like, CellKind::values)),
      packed_(like.packed),
      runs_(like.runs.size()) {
  for (size_t h = 0; h < runs_.size() && !packed_.empty(); ++h) {
    runs_[h].packed_keys = &packed_[2 * h];
    runs_[h].packed_values = &packed_[2 * h + 1];
  }
}

int64_t StoredRuns::key_bytes(int64_t entries) const { return kernels::cell_bytes(entries, key_channels_, dtype_); }
int64_t StoredRuns::value_bytes(int64_t entries) const { return kernels::cell_bytes(entries, value_channels_, dtype_); }

int64_t StoredRuns::lay_out(char* base) {
  MemoryPieces pieces(base);
  for (kernels::PackedEntries& side : packed_) pieces.place(side, code_room_);
  for (HeadRun& run : runs_) {
    run.keys = pieces.take(key_bytes(key_room_));
    run.values = pieces.take(value_bytes(value_room_));
  }
  return pieces.taken();
}

/// Forgets what was uploaded.
void StoredRuns::make_room(const Counts& counts, UploadBatch& uploads) {
  uploads.finish();  // what is on its way goes to the old place
  code_room_ = grown_capacity(std::max(counts.packed_keys, counts.packed_values));
  key_room_ = grown_capacity(counts.entries - counts.packed_keys);
  value_room_ = grown_capacity(counts.entries - counts.packed_values);
  held_ = {};
  memory_ = {};
  memory_.reserve(lay_out(nullptr));
  lay_out(static_cast<char*>(memory_.data()));
}

/// Cells begin with the first entry that is not packed.
int64_t StoredRuns::first_new(int64_t packed_before, int64_t packed) const {
  const int64_t same = packed == packed_before ? std::max<int64_t>(0, held_.entries - packed) : 0;
  return same / kernels::kCell * kernels::kCell;
}

bool StoredRuns::follow(const AttentionItem& item, UploadBatch& uploads) {
  const HeadRun& first = item.runs.front();
  const Counts counts{first.entries, first.packed_key_count, first.packed_value_count};
  if (counts == held_) return false;
  const bool fits = std::max(counts.packed_keys, counts.packed_values) <= code_room_ &&
                    counts.entries - counts.packed_keys <= key_room_ &&
                    counts.entries - counts.packed_values <= value_room_;
  if (!fits) make_room(counts, uploads);
  for (size_t h = 0; h < runs_.size(); ++h) {
    HeadRun& run = runs_[h];
    const HeadRun& from = item.runs[h];
    if (!packed_.empty()) {
      upload_packed(packed_[2 * h], *from.packed_keys, held_.packed_keys, counts.packed_keys, uploads);
      upload_packed(packed_[2 * h + 1], *from.packed_values, held_.packed_values, counts.packed_values, uploads);
    }
    uploads.add(const_cast<void*>(run.keys), from.keys, key_bytes(first_new(held_.packed_keys, counts.packed_keys)),
                key_bytes(counts.entries - counts.packed_keys));
    uploads.add(const_cast<void*>(run.values), from.values,
                value_bytes(first_new(held_.packed_values, counts.packed_values)),
                value_bytes(counts.entries - counts.packed_values));
    run.entries = counts.entries;
    run.packed_key_count = counts.packed_keys;
    run.packed_value_count = counts.packed_values;
  }
  held_ = counts;
  return true;
}

void StoredRuns::load(CellKind kind, int64_t first, const kernels::EntryRows& to, kernels::CudaScratch& scratch,
                      kernels::CudaStream stream) const {
  const bool keys = kind == CellKind::keys;
  const int64_t packed = keys ? held_.packed_keys : held_.packed_values;
  const int64_t channels = keys ? key_channels_ : value_channels_, width = to.heads * channels;
  const int64_t coded = std::clamp<int64_t>(packed - first, 0, to.count);
  std::vector<kernels::RowDecode> decodes;
  std::vector<kernels::RowLoad> loads;
  for (int64_t h = 0; h < to.heads; ++h) {
    const HeadRun& run = runs_[static_cast<size_t>(h)];
    float* const rows = to.x + h * channels;
    if (coded > 0) {
      decodes.push_back({.from = keys ? *run.packed_keys : *run.packed_values,
                         .position = first,
                         .count = coded,
                         .rows = rows,
                         .row_stride = width});
    }
    if (coded < to.count && channels > 0) {
      loads.push_back({.from = {.kind = kind,
                                .dtype = dtype_,
                                .head_dim = channels,
                                .data = const_cast<void*>(keys ? run.keys : run.values)},
                       .position = first + coded - packed,
                       .count = to.count - coded,
                       .rows = rows + coded * width,
                       .row_stride = width});
    }
  }
  if (!decodes.empty()) kernels::decode_rows_cuda(decodes, scratch, stream);
  if (!loads.empty()) kernels::load_rows_cuda(loads, scratch, stream);
}

}  // namespace kvarena::device
