// Attention to the segments in front of a layer's runs: as they are stored, or dequantised first.
#include "harness/device/device_model_impl.h"

namespace kvarena::device {

bool DeviceModel::Stage::any_mapped() const {
  return std::ranges::any_of(sequences, [](const Sequence& s) {
    return s.cache != nullptr && std::ranges::any_of(s.cache->fronts_, [](const std::vector<DeviceSegment>& fronts) {
             return std::ranges::any_of(fronts, &DeviceSegment::is_mapped);
           });
  });
}

/// Parts of them, so that what is dequantised stays in the device's cache; where some are listed, all.
int64_t DeviceModel::Stage::most_dequantized() const {
  constexpr int64_t kAtOnce = 4 * kernels::kChunk;
  int64_t most = 0;
  for (const Sequence& s : sequences) {
    if (s.cache == nullptr) continue;
    for (const std::vector<DeviceSegment>& fronts : s.cache->fronts_) {
      for (const DeviceSegment& front : fronts) {
        if (!front.has_steps()) continue;
        const int64_t entries = kernels::cells_for(front.entries()) * kernels::kCell;
        most = std::max(most, s.pass->choice != nullptr ? entries : std::min(entries, kAtOnce));
      }
    }
  }
  return most;
}

/// The packed entries of all sequences; a sequence's own one after the other, since they go to one state.
void DeviceModel::Stage::attend_segments(int64_t layer, const QkvRows& from, const kernels::AttentionState& all,
                                         kernels::CudaScratch& with) {
  for (size_t turn = 0;; ++turn) {
    std::vector<SegmentPass> stored;
    bool any = false;
    for (const Sequence& s : sequences) {
      if (s.cache == nullptr || turn >= s.cache->fronts_[layer].size()) continue;
      any = true;
      const bool selected = turn < s.choice.fronts.size();
      if (selected && !s.choice.fronts[turn].attended) continue;
      const bool codes_alone = selected ? s.choice.fronts[turn].codes_alone : s.pass->codes_alone;
      SegmentPass part{&s, &s.cache->fronts_[layer][turn], {}};
      if (selected) part.lists = s.lists_fronts[turn];
      if (part.front->has_steps() && !codes_alone) {
        attend_dequantized(part, from, all, with);
      } else {
        stored.push_back(part);
      }
    }
    if (!any) return;
    if (!stored.empty()) attend_segments(stored, from, all, with);
  }
}

/// Part by part, whole chunks of attention, so that its bits do not depend on how large parts are.
void DeviceModel::Stage::attend_dequantized(const SegmentPass& part, const QkvRows& from,
                                            const kernels::AttentionState& all, kernels::CudaScratch& with) {
  const DequantWorkspace room = DequantWorkspace::in(dequantized.data(), dequantized_at_once, shape());
  for (int64_t first = 0; first < part.front->entries(); first += room.entries) {
    const int64_t count = std::min(room.entries, part.front->entries() - first);
    std::vector<kernels::HeadRun> runs = part.front->dequantize(first, count, room, with, compute.stream()), listed;
    add_listed(runs, part.lists, listed);
    kernels::AttendProblem problem = problem_of(part.sequence->first_row, part.sequence->rows, from, all);
    problem.dtype = DType::f32;
    problem.runs = listed.empty() ? runs.data() : listed.data();
    kernels::attend_cuda(attend_args({&problem, 1}), with, compute.stream());
  }
}

/// Where keys were mapped, mapped queries attend; where values were, to a state of their own, which is freed of the map
/// before it joins the others.
void DeviceModel::Stage::attend_segments(std::span<const SegmentPass> fronts, const QkvRows& from,
                                         const kernels::AttentionState& all, kernels::CudaScratch& with) {
  const int64_t d = shape().head_dim, heads = config.q_heads, width = heads * d;
  const kernels::AttentionState apart{
      .out = own.data(), .max = own.data() + rows * width, .sum = own.data() + rows * (width + heads)};
  std::vector<kernels::AttendProblem> problems;
  std::vector<std::vector<kernels::HeadRun>> listed(fronts.size());
  for (size_t i = 0; i < fronts.size(); ++i) {
    const auto& [s, front, lists] = fronts[i];
    kernels::AttendProblem& problem = problems.emplace_back(problem_of(s->first_row, s->rows, from, all));
    add_listed(front->runs(), lists, listed[i]);
    problem.runs = listed[i].empty() ? front->runs().data() : listed[i].data();
    problem.dtype = front->dtype();
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
  for (const auto& [s, front, lists] : fronts) {
    if (front->value_maps() == nullptr) continue;
    kernels::AttentionState freed = part_of(apart, s->first_row);
    float* const values = mapped.data() + s->first_row * width;
    front->value_maps()->apply(freed.out, width, s->rows, heads, values, compute.stream());
    freed.out = values;
    kernels::merge_attention_cuda(part_of(all, s->first_row), freed, s->rows * heads, d, compute.stream());
  }
}

}  // namespace kvarena::device
