// What the host chose that a layer attends to.
#include "harness/device/device_model_impl.h"

namespace kvarena::device {
namespace {

/// Pieces of the host's that go up together.
class Parcel {
 public:
  /// `place` points to them on the device after send().
  template <class T>
  void add(const T*& place, int64_t bytes) {
    const auto* const first = reinterpret_cast<const std::byte*>(place);
    places_.push_back({std::ssize(bytes_), [&place](const void* at) { place = static_cast<const T*>(at); }});
    bytes_.insert(bytes_.end(), first, first + bytes);
  }
  void send(kernels::CudaScratch& with, kernels::CudaStream stream) const {
    if (bytes_.empty()) return;
    const auto* const at = static_cast<const std::byte*>(with.upload(bytes_.data(), std::ssize(bytes_), stream));
    for (const auto& [first, tell] : places_) tell(at + first);
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::pair<int64_t, std::function<void(const void*)>>> places_;
};

}  // namespace

/// What sequences attend to that leave it to the host, which gets the layer's rows for it.
void DeviceModel::Impl::choose_on_host(int64_t layer) {
  if (!any_chooses()) return;
  kernels::cuda_synchronize(compute.stream());
  std::vector<int32_t> all;
  const auto add = [&](std::span<const int32_t> list, std::vector<IndexList>& lists) {
    lists.push_back({.entries = nullptr, .count = std::ssize(list)});
    all.insert(all.end(), list.begin(), list.end());
  };
  for (Sequence& s : sequences) {
    s.chosen.clear();
    s.chosen_packed.clear();
    s.choice =
        s.pass->choice == nullptr ? AttentionSelection{} : s.pass->choice->choose(layer, brought.layer(layer, s.first_row));
    for (const std::span<const int32_t> list : s.choice.entries) add(list, s.chosen);
    if (s.choice.packed == nullptr) continue;
    for (const std::vector<int32_t>& list : *s.choice.packed) add(list, s.chosen_packed);
  }
  all.push_back(0);  // a null index would list everything
  const auto* at =
      static_cast<const int32_t*>(choices.upload(all.data(), std::ssize(all) * int64_t{4}, compute.stream()));
  for (Sequence& s : sequences) at = IndexList::place(s.chosen_packed, IndexList::place(s.chosen, at));
  upload_chosen();
}

/// What choices point to in the host's memory; from then on they point to it on the device.
void DeviceModel::Impl::upload_chosen() {
  Parcel parcel;
  const auto add = [&](kernels::HeadRun& run) {
    const int64_t bytes = kernels::cell_bytes(run.entries, shape().head_dim, options.cache);
    parcel.add(run.keys, bytes);
    parcel.add(run.values, bytes);
  };
  for (Sequence& s : sequences) {
    for (kernels::HeadRun& run : s.choice.runs) add(run);
    for (ExtraRuns& beside : s.choice.extra) {
      for (kernels::HeadRun& run : beside.runs) add(run);
      if (beside.queries != nullptr) parcel.add(beside.queries, s.rows * config.q_heads * shape().head_dim * 4);
    }
  }
  parcel.send(brought_entries, compute.stream());
}

/// A sequence whose rows all attend to what the host listed.
void DeviceModel::Impl::add_chosen(int64_t layer, const Sequence& s, const QkvRows& from,
                                   const kernels::AttentionState& all, AttentionCall& call) const {
  kernels::AttendProblem& problem = call.problems.emplace_back(problem_of(s.first_row, s.rows, from, all));
  problem.runs = call.runs.data() + call.runs.size();
  const size_t lists_of_head = s.chosen.size() / static_cast<size_t>(shape().kv_heads);
  for (size_t i = 0; i < s.chosen.size(); ++i) {
    const auto head = static_cast<int64_t>(i / lists_of_head);
    kernels::HeadRun& run = call.runs.emplace_back();
    if (s.choice.runs.empty()) {
      run.keys = s.cache->cells(layer, head, kernels::CellKind::keys).data;
      run.values = s.cache->cells(layer, head, kernels::CellKind::values).data;
      run.entries = s.most - s.cache->dropped(layer)[head];
    } else {
      run = s.choice.runs[static_cast<size_t>(head)];
    }
    run.index = s.chosen[i].entries;
    run.index_count = s.chosen[i].count;
  }
  call.growth.emplace_back();
}

/// What choices brought; a sequence's own one after the other, since they go to one state.
void DeviceModel::Impl::attend_extra(const QkvRows& from, const kernels::AttentionState& all,
                                      kernels::CudaScratch& with) {
  const int64_t dim = shape().head_dim, width = config.q_heads * dim;
  for (size_t turn = 0;; ++turn) {
    std::vector<kernels::AttendProblem> problems;
    for (const Sequence& s : sequences) {
      if (turn >= s.choice.extra.size()) continue;
      const ExtraRuns& beside = s.choice.extra[turn];
      const int64_t first = s.first_row + beside.first_row, count = s.rows - beside.first_row;
      kernels::AttendProblem& problem = problems.emplace_back(problem_of(first, count, from, all));
      problem.runs = beside.runs.data();
      problem.causal = beside.causal;
      if (beside.queries == nullptr) continue;
      problem.q = beside.queries + beside.first_row * width;
      problem.q_token_stride = width;
    }
    if (problems.empty()) return;
    kernels::attend_cuda(attend_args(problems), with, compute.stream());
  }
}

}  // namespace kvarena::device
