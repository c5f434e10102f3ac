#include "harness/device/device_segment.h"

#include <algorithm>

#include "harness/core/error.h"
#include "kernels/cells/cells_cuda.h"

namespace kvarena::device {
namespace {

using kernels::CellKind;

std::shared_ptr<StoredRuns> stored_in(DequantShared& shared, const AttentionItem& item) {
  std::weak_ptr<StoredRuns>& known = shared.stored[item.stored->version()];
  std::shared_ptr<StoredRuns> stored = known.lock();
  if (stored == nullptr) known = stored = std::make_shared<StoredRuns>(item);
  return stored;
}

}  // namespace

DequantWorkspace DequantWorkspace::in(float* memory, int64_t entries, const LayerShape& shape) {
  const int64_t rows = entries * shape.kv_heads * shape.head_dim;
  return {.entries = entries, .rows = memory, .spare = memory + rows, .cells = memory + 2 * rows};
}

AttentionItem stored_item(const Segment& segment) {
  AttentionPlan plan = plan_of(segment, {});
  KVARENA_ASSERT(plan.items.size() == 1, "a segment that stores entries in several items");
  return std::move(plan.items.front());
}

bool in_runs(const AttentionItem& item) {
  return item.packed.empty() && item.steps.empty() && item.biases.empty() && !item.gather &&
         item.dtype == item.from->shape().dtype;
}

std::string DeviceSegment::unsupported_reason(const AttentionItem& item) {
  if (!item.biases.empty()) return "entries with biases";
  if (item.from->shape().window > 0 && !item.gather) return "packed entries under a sliding window";
  const auto longer = [&](const kernels::HeadRun& run) { return run.entries != item.runs.front().entries; };
  if (std::ranges::any_of(item.runs, longer)) return "packed heads of different lengths";
  return {};
}

DeviceSegment::DeviceSegment(const AttentionItem& item, DequantShared& shared, UploadBatch& uploads)
    : version_(item.stored->version()),
      shape_(item.from->shape()),
      needs_view_(item.gather != nullptr),
      stored_(stored_in(shared, item)) {
  const bool stepped = !item.steps.empty();
  const auto make = [&](const std::vector<DequantOp>& steps, const RowTransformPtr& last, Steps& to) {
    for (const DequantOp& step : steps) to.push_back(make_step(step, shape_.kv_heads, shape_.head_dim, shared));
    if (stepped && last) to.push_back(make_step(UndoTransform{last}, shape_.kv_heads, shape_.head_dim, shared));
  };
  make(item.steps.keys, item.key_transform, keys_);
  make(item.steps.values, item.value_transform, values_);
  if (!stepped) {
    key_maps_ = shared.maps.of(item.key_transform, HeadMaps::Use::queries, shape_.kv_heads, shape_.head_dim);
    value_maps_ = shared.maps.of(item.value_transform, HeadMaps::Use::attended, shape_.kv_heads, shape_.head_dim);
  }
  follow(item, uploads);
}

bool DeviceSegment::follow(const AttentionItem& item, UploadBatch& uploads) {
  const bool more = stored_->follow(item, uploads);
  const int64_t entries = item.runs.front().entries;
  if (entries == stepped_) return more;
  const auto follow_all = [&](const std::vector<DequantOp>& steps, const Steps& own) {
    for (size_t i = 0; i < steps.size(); ++i) own[i]->follow(steps[i], stepped_, entries, uploads);
  };
  follow_all(item.steps.keys, keys_);
  follow_all(item.steps.values, values_);
  stepped_ = entries;
  return true;
}

void DeviceSegment::dequantize(CellKind kind, int64_t first, RowsAtWork work, const std::vector<kernels::HeadRun>& to,
                               kernels::CudaScratch& scratch, kernels::CudaStream stream) const {
  stored_->load(kind, first, work.rows, scratch, stream);
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

std::vector<kernels::HeadRun> DeviceSegment::dequantize(int64_t first, int64_t count, const DequantWorkspace& room,
                                                        kernels::CudaScratch& scratch,
                                                        kernels::CudaStream stream) const {
  KVARENA_ASSERT(count <= room.entries && first + count <= entries(), "more entries than there is room for");
  const int64_t side = room.entries * shape_.head_dim;
  std::vector<kernels::HeadRun> runs;
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    float* const keys = room.cells + 2 * h * side;
    runs.push_back({.keys = keys, .values = keys + side, .entries = count});
  }
  const RowsAtWork work{.rows = {.x = room.rows, .count = count, .heads = shape_.kv_heads, .head_dim = shape_.head_dim},
                        .spare = room.spare};
  dequantize(CellKind::keys, first, work, runs, scratch, stream);
  dequantize(CellKind::values, first, work, runs, scratch, stream);
  return runs;
}

int64_t DeviceSegment::bytes() const {
  int64_t total = stored_->bytes() / stored_.use_count();  // layers share it
  for (const Steps* steps : {&keys_, &values_}) {
    for (const auto& step : *steps) total += step->bytes();
  }
  return total;
}

}  // namespace kvarena::device
