// What of a layer is packed: attended as it lies, or put together first.
#include "harness/device/device_model_impl.h"

namespace kvarena::device {

bool DeviceModel::Impl::any_mapped() const {
  return std::ranges::any_of(sequences, [](const Sequence& s) {
    return s.cache != nullptr && std::ranges::any_of(s.cache->fronts_, [](const std::vector<DeviceSegment>& fronts) {
             return std::ranges::any_of(fronts, [](const DeviceSegment& front) {
               const auto* const packed = std::get_if<DevicePackedSegment>(&front);
               return packed != nullptr && packed->is_mapped();
             });
           });
  });
}

/// Parts of them, so that what is put together stays in the device's cache; where some are listed, all.
int64_t DeviceModel::Impl::most_restored() const {
  constexpr int64_t kAtOnce = 4 * kernels::kChunk;
  int64_t most = 0;
  for (const Sequence& s : sequences) {
    if (s.cache == nullptr) continue;
    for (const std::vector<DeviceSegment>& fronts : s.cache->fronts_) {
      for (const DeviceSegment& front : fronts) {
        const auto* const restored = std::get_if<DeviceDequantSegment>(&front);
        if (restored == nullptr) continue;
        const int64_t entries = kernels::cells_for(restored->entries()) * kernels::kCell;
        most = std::max(most, s.pass->choice != nullptr ? entries : std::min(entries, kAtOnce));
      }
    }
  }
  return most;
}

/// The packed entries of all sequences; a sequence's own one after the other, since they go to one state.
void DeviceModel::Impl::attend_segments(int64_t layer, const QkvRows& from, const kernels::AttentionState& all,
                                      kernels::CudaScratch& with) {
  for (size_t turn = 0;; ++turn) {
    std::vector<SegmentPass> fronts;
    std::vector<kernels::AttendProblem> kept;
    bool any = false;
    for (const Sequence& s : sequences) {
      if (s.cache == nullptr || turn >= s.cache->fronts_[layer].size()) continue;
      any = true;
      const DeviceSegment& front = s.cache->fronts_[layer][turn];
      if (const auto* const packed = std::get_if<DevicePackedSegment>(&front)) {
        fronts.push_back({&s, packed});
      } else if (const auto* const own = std::get_if<DevicePinnedSegment>(&front)) {
        kept.emplace_back(problem_of(s.first_row, s.rows, from, all)).runs = own->runs().data();
      } else if (const auto& restored = std::get<DeviceDequantSegment>(front); s.pass->codes_alone) {
        fronts.push_back({&s, restored.codes()});
      } else {
        attend_restored(s, restored, from, all, with);
      }
    }
    if (!any) return;
    if (!fronts.empty()) attend_segments(fronts, from, all, with);
    if (!kept.empty()) kernels::attend_cuda(attend_args(kept), with, compute.stream());
  }
}

/// Part by part, whole chunks of attention, so that its bits do not depend on how large parts are.
void DeviceModel::Impl::attend_restored(const Sequence& s, const DeviceDequantSegment& front, const QkvRows& from,
                                        const kernels::AttentionState& all, kernels::CudaScratch& with) {
  const DequantWorkspace room = DequantWorkspace::in(restored.data(), restored_at_once, shape());
  for (int64_t first = 0; first < front.entries(); first += room.entries) {
    const int64_t count = std::min(room.entries, front.entries() - first);
    std::vector<kernels::HeadRun> runs = front.restore(first, count, room, with, compute.stream());
    for (size_t head = 0; head < s.chosen_packed.size(); ++head) {
      runs[head].index = s.chosen_packed[head].entries;
      runs[head].index_count = s.chosen_packed[head].count;
    }
    kernels::AttendProblem problem = problem_of(s.first_row, s.rows, from, all);
    problem.dtype = DType::f32;
    problem.runs = runs.data();
    kernels::attend_cuda(attend_args({&problem, 1}), with, compute.stream());
  }
}

/// Where keys were mapped, mapped queries attend; where values were, to a state of their own, which is freed of the map
/// before it joins the others.
void DeviceModel::Impl::attend_segments(std::span<const SegmentPass> fronts, const QkvRows& from,
                                      const kernels::AttentionState& all, kernels::CudaScratch& with) {
  const int64_t d = shape().head_dim, heads = config.q_heads, width = heads * d;
  const kernels::AttentionState apart{
      .out = own.data(), .max = own.data() + rows * width, .sum = own.data() + rows * (width + heads)};
  std::vector<kernels::AttendProblem> problems;
  std::vector<std::vector<kernels::HeadRun>> listed(fronts.size());
  for (size_t i = 0; i < fronts.size(); ++i) {
    const auto& [s, front] = fronts[i];
    kernels::AttendProblem& problem = problems.emplace_back(problem_of(s->first_row, s->rows, from, all));
    listed[i] = front->runs();
    for (size_t head = 0; head < s->chosen_packed.size(); ++head) {
      listed[i][head].index = s->chosen_packed[head].entries;
      listed[i][head].index_count = s->chosen_packed[head].count;
    }
    problem.runs = listed[i].data();
    if (front->key_maps() != nullptr) {
      float* const queries = mapped.data() + s->first_row * width;
      front->key_maps()->apply(problem.q, from.q_stride, s->rows, heads, queries, compute.stream());
      problem.q = queries;
      problem.q_token_stride = width;
    }
    if (front->value_maps() == nullptr) continue;
    problem.state = part_of(apart, s->first_row);
    kernels::init_attention_cuda(problem.state, s->rows, heads, d, compute.stream());
  }
  kernels::attend_cuda(attend_args(problems), with, compute.stream());
  for (const auto& [s, front] : fronts) {
    if (front->value_maps() == nullptr) continue;
    kernels::AttentionState freed = part_of(apart, s->first_row);
    float* const values = mapped.data() + s->first_row * width;
    front->value_maps()->apply(freed.out, width, s->rows, heads, values, compute.stream());
    freed.out = values;
    kernels::merge_attention_cuda(part_of(all, s->first_row), freed, s->rows * heads, d, compute.stream());
  }
}

}  // namespace kvarena::device
