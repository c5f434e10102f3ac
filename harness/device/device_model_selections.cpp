// Attention to the entries that the host selected for a layer.
#include "harness/device/device_model_impl.h"
#include "harness/device/upload_batch.h"

namespace kvarena::device {

/// Asks the host, which gets the layer's rows for it, what sequences attend to that leave it to it.
void DeviceModel::Stage::choose_on_host(int64_t layer) {
  if (!any_chooses()) return;
  kernels::cuda_synchronize(compute.stream());
  std::vector<int32_t> all;
  const auto add = [&](std::span<const int32_t> list, std::vector<IndexList>& lists) {
    lists.push_back({.entries = nullptr, .count = std::ssize(list)});
    all.insert(all.end(), list.begin(), list.end());
  };
  for (Sequence& s : sequences) {
    s.choice = s.pass->choice == nullptr ? AttentionSelection{}
                                         : s.pass->choice->choose(layer, brought.layer(layer, s.first_row));
    s.lists_own.clear();
    s.lists_fronts.assign(s.choice.fronts.size(), {});
    s.lists_extra.assign(s.choice.extra.size(), {});
    for (const std::span<const int32_t> list : s.choice.entries) add(list, s.lists_own);
    for (size_t i = 0; i < s.choice.fronts.size(); ++i) {
      for (const std::span<const int32_t> list : s.choice.fronts[i].lists) add(list, s.lists_fronts[i]);
    }
    for (size_t i = 0; i < s.choice.extra.size(); ++i) {
      for (const std::span<const int32_t> list : s.choice.extra[i].lists) add(list, s.lists_extra[i]);
    }
  }
  all.push_back(0);  // a null index would list everything
  const auto* at =
      static_cast<const int32_t*>(choices.upload(all.data(), std::ssize(all) * int64_t{4}, compute.stream()));
  for (Sequence& s : sequences) {
    at = IndexList::place(s.lists_own, at);
    for (std::vector<IndexList>& lists : s.lists_fronts) at = IndexList::place(lists, at);
    for (std::vector<IndexList>& lists : s.lists_extra) at = IndexList::place(lists, at);
  }
  upload_chosen();
}

/// Uploads what selections point to in the host's memory; from then on they point to it on the device.
void DeviceModel::Stage::upload_chosen() {
  UploadBatch uploads;
  const auto add = [&](kernels::HeadRun& run) {
    const int64_t bytes = kernels::cell_bytes(run.entries, shape().head_dim, options.cache);
    uploads.add(run.keys, bytes);
    uploads.add(run.values, bytes);
  };
  for (Sequence& s : sequences) {
    for (ExtraRuns& extra : s.choice.extra) {
      for (kernels::HeadRun& run : extra.runs) add(run);
      if (extra.queries != nullptr) uploads.add(extra.queries, s.rows * config.q_heads * shape().head_dim * 4);
    }
  }
  uploads.send(brought_entries, compute.stream());
}

/// Runs by lists, of which every run's head has one or each of its query heads.
void DeviceModel::Stage::add_listed(std::span<const kernels::HeadRun> runs, std::span<const IndexList> lists,
                                    std::vector<kernels::HeadRun>& to) {
  const size_t lists_of_run = lists.size() / runs.size();
  for (size_t i = 0; i < lists.size(); ++i) {
    kernels::HeadRun& run = to.emplace_back(runs[i / lists_of_run]);
    run.index = lists[i].entries;
    run.index_count = lists[i].count;
  }
}

/// A sequence whose rows all attend to what the host listed.
void DeviceModel::Stage::add_chosen(int64_t layer, const Sequence& s, const QkvRows& from,
                                    const kernels::AttentionState& all, AttentionCall& call) const {
  kernels::AttendProblem& problem = call.problems.emplace_back(problem_of(s.first_row, s.rows, from, all));
  problem.runs = call.runs.data() + call.runs.size();
  std::vector<kernels::HeadRun> runs;
  for (int64_t head = 0; head < shape().kv_heads; ++head) {
    runs.push_back({.keys = s.cache->cells(layer, head, kernels::CellKind::keys).data,
                    .values = s.cache->cells(layer, head, kernels::CellKind::values).data,
                    .entries = s.most - s.cache->dropped(layer)[head]});
  }
  add_listed(runs, s.lists_own, call.runs);
  call.growth.emplace_back();
}

/// Attends to uploaded entries; a sequence's own one after the other, since they go to one state.
void DeviceModel::Stage::attend_extra(const QkvRows& from, const kernels::AttentionState& all,
                                      kernels::CudaScratch& with) {
  const int64_t dim = shape().head_dim, width = config.q_heads * dim;
  for (size_t turn = 0;; ++turn) {
    std::vector<kernels::AttendProblem> problems, by_query_head;
    std::vector<std::vector<kernels::HeadRun>> listed(sequences.size());
    for (size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& s = sequences[i];
      if (turn >= s.choice.extra.size()) continue;
      const ExtraRuns& extra = s.choice.extra[turn];
      add_listed(extra.runs, s.lists_extra[turn], listed[i]);
      const std::vector<kernels::HeadRun>& runs = listed[i].empty() ? extra.runs : listed[i];
      const int64_t first = s.first_row + extra.first_row, count = s.rows - extra.first_row;
      kernels::AttendProblem problem = problem_of(first, count, from, all);
      problem.runs = runs.data();
      problem.causal = extra.causal;
      if (extra.queries != nullptr) {
        problem.q = extra.queries + extra.first_row * width;
        problem.q_token_stride = width;
      }
      (runs.size() == extra.runs.size() ? problems : by_query_head).push_back(problem);
    }
    if (problems.empty() && by_query_head.empty()) return;
    attend(problems, by_query_head, with);
  }
}

/// Problems with a run a kv head, and those with a run a query head.
void DeviceModel::Stage::attend(std::span<const kernels::AttendProblem> problems,
                                std::span<const kernels::AttendProblem> by_query_head, kernels::CudaScratch& with,
                                std::span<const kernels::RunGrowth> growth) {
  if (!problems.empty()) kernels::attend_cuda(attend_args(problems), growth, with, compute.stream());
  if (by_query_head.empty()) return;
  kernels::AttendArgs args = attend_args(by_query_head);
  args.kv_heads = args.q_heads;
  kernels::attend_cuda(args, with, compute.stream());
}

}  // namespace kvarena::device
