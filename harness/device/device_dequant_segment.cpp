#include "harness/device/device_dequant_segment.h"

#include "harness/core/error.h"
#include "kernels/cells/cells_cuda.h"
#include "kernels/quantize/quantize_cuda.h"

namespace kvarena::device {
namespace {

using kernels::CellKind;

int64_t entries_of(const DequantProgram& words) {
  return std::visit([](const auto* stored) { return stored->entries(0); }, words.stored);
}

std::shared_ptr<StoredEntries> stored_in(DequantShared& shared, const EntrySegment& segment) {
  std::weak_ptr<StoredEntries>& known = shared.entries[segment.version()];
  std::shared_ptr<StoredEntries> stored = known.lock();
  if (stored == nullptr) known = stored = std::make_shared<StoredEntries>(segment.shape());
  return stored;
}

}  // namespace

DequantWorkspace DequantWorkspace::in(float* memory, int64_t entries, const LayerShape& shape) {
  const int64_t rows = entries * shape.kv_heads * shape.head_dim;
  return {.entries = entries, .rows = memory, .spare = memory + rows, .cells = memory + 2 * rows};
}

std::string DeviceDequantSegment::cannot_hold(const Dequantizable& segment, const LayerShape& shape) {
  if (shape.window > 0) return "packed entries under a sliding window";
  if (!segment.dequant_program()) return "entries that a method puts together in a way of its own";
  return {};
}

DeviceDequantSegment::DeviceDequantSegment(const Dequantizable& segment, const LayerShape& shape, DequantShared& shared,
                             UploadBatch& uploads)
    : version_(segment.version()), shape_(shape) {
  const std::optional<DequantProgram> words = segment.dequant_program();
  KVARENA_ASSERT(words.has_value(), "a segment that says how it is put together");
  if (const auto* codes = std::get_if<const QuantizedSegment*>(&words->stored)) {
    codes_.emplace(**codes, shared.maps, uploads);
  } else {
    stored_ = stored_in(shared, *std::get<const EntrySegment*>(words->stored));
  }
  for (const DequantOp& step : words->steps.keys)
    keys_.push_back(make_step(step, shape.kv_heads, shape.head_dim, shared));
  for (const DequantOp& step : words->steps.values)
    values_.push_back(make_step(step, shape.kv_heads, shape.head_dim, shared));
  follow(segment, uploads);
}

bool DeviceDequantSegment::follow(const Dequantizable& segment, UploadBatch& uploads) {
  const std::optional<DequantProgram> words = segment.dequant_program();
  const int64_t entries = entries_of(*words);
  if (entries == entries_) return false;
  if (codes_) {
    codes_->follow(*std::get<const QuantizedSegment*>(words->stored), uploads);
  } else {
    stored_->follow(*std::get<const EntrySegment*>(words->stored), uploads);
  }
  for (size_t i = 0; i < keys_.size(); ++i) keys_[i]->follow(words->steps.keys[i], entries_, entries, uploads);
  for (size_t i = 0; i < values_.size(); ++i) values_[i]->follow(words->steps.values[i], entries_, entries, uploads);
  entries_ = entries;
  return true;
}

void DeviceDequantSegment::load_codes(CellKind kind, int64_t first, const kernels::EntryRows& to,
                               kernels::CudaScratch& scratch, kernels::CudaStream stream) const {
  std::vector<kernels::RowDecode> items;
  for (int64_t h = 0; h < to.heads; ++h) {
    const kernels::HeadRun& run = codes_->runs()[static_cast<size_t>(h)];
    items.push_back({.from = kind == CellKind::keys ? *run.packed_keys : *run.packed_values,
                     .position = first,
                     .count = to.count,
                     .rows = to.x + h * to.head_dim,
                     .row_stride = to.width()});
  }
  kernels::decode_rows_cuda(items, scratch, stream);
}

void DeviceDequantSegment::restore(CellKind kind, int64_t first, RowsAtWork work, const std::vector<kernels::HeadRun>& to,
                            kernels::CudaScratch& scratch, kernels::CudaStream stream) const {
  if (codes_) {
    load_codes(kind, first, work.rows, scratch, stream);
  } else {
    stored_->load(kind, first, work.rows, scratch, stream);
  }
  for (const auto& step : kind == CellKind::keys ? keys_ : values_) step->apply(work, first, scratch, stream);
  std::vector<kernels::RowStore> stores;
  for (size_t h = 0; h < to.size(); ++h) {
    const void* const cells = kind == CellKind::keys ? to[h].keys : to[h].values;
    stores.push_back({.to = {.kind = kind,
                             .dtype = kernels::DType::f32,
                             .head_dim = shape_.head_dim,
                             .data = const_cast<void*>(cells)},
                      .count = work.rows.count,
                      .rows = work.rows.x + static_cast<int64_t>(h) * shape_.head_dim,
                      .row_stride = work.rows.width()});
  }
  kernels::store_rows_cuda(stores, scratch, stream);
}

std::vector<kernels::HeadRun> DeviceDequantSegment::restore(int64_t first, int64_t count, const DequantWorkspace& room,
                                                     kernels::CudaScratch& scratch, kernels::CudaStream stream) const {
  KVARENA_ASSERT(count <= room.entries && first + count <= entries_, "more entries than there is room for");
  const int64_t side = room.entries * shape_.head_dim;
  std::vector<kernels::HeadRun> runs;
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    float* const keys = room.cells + 2 * h * side;
    runs.push_back({.keys = keys, .values = keys + side, .entries = count});
  }
  const RowsAtWork work{.rows = {.x = room.rows, .count = count, .heads = shape_.kv_heads, .head_dim = shape_.head_dim},
                        .spare = room.spare};
  restore(CellKind::keys, first, work, runs, scratch, stream);
  restore(CellKind::values, first, work, runs, scratch, stream);
  return runs;
}

int64_t DeviceDequantSegment::bytes() const {
  int64_t total = codes_ ? codes_->bytes() : stored_->bytes() / stored_.use_count();  // layers share it
  for (const Steps* steps : {&keys_, &values_}) {
    for (const auto& step : *steps) total += step->bytes();
  }
  return total;
}

}  // namespace kvarena::device
