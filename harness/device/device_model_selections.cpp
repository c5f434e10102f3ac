// Attention to the entries that the host selected for a layer.
#include "harness/device/device_model_impl.h"
#include "harness/device/upload_batch.h"

namespace kvarena::device {

using kernels::CellKind;

namespace {

/// Where entries that are listed of the host's heads stand in their runs; nothing where these hold no others.
std::vector<std::vector<int32_t>> places_in_runs(const DeviceCache& cache, int64_t layer,
                                                 std::span<const std::span<const int32_t>> lists) {
  std::vector<std::vector<int32_t>> places;
  const std::span<const std::vector<int32_t>> kept = cache.kept(layer);
  if (kept.empty()) return places;
  for (size_t i = 0; i < lists.size(); ++i) {
    const size_t head = i * kept.size() / lists.size();
    const auto held = static_cast<int32_t>(std::ssize(kept[head]));
    const auto behind = static_cast<int32_t>(cache.entries(layer, static_cast<int64_t>(head))) - held;
    std::vector<int32_t>& own = places.emplace_back();
    for (const int32_t entry : lists[i])
      own.push_back(entry < held ? kept[head][static_cast<size_t>(entry)] : entry + behind);
  }
  return places;
}

}  // namespace

/// Asks the host, which gets the layer's rows for it, what sequences attend to that leave it to it.
void DeviceModel::Stage::choose_on_host(int64_t layer, const QkvRows& from) {
  if (any_chooses(false)) {
    kernels::cuda_synchronize(compute.stream());
    choose(layer, /*known_ones=*/false);
  }
  store_fresh(from);
}

/// Takes the choices that have come ahead for the layer that begins.
void DeviceModel::Stage::take_ahead() {
  for (Sequence& s : sequences) {
    if (chooses(s, /*known_ones=*/true)) static_cast<LayerChoice&>(s) = std::move(s.ahead);
  }
}

void DeviceModel::Stage::choose(int64_t layer, bool known_ones) {
  std::vector<int32_t> all;
  const auto add = [&](std::span<const int32_t> list, std::vector<IndexList>& lists) {
    lists.push_back({.entries = nullptr, .count = std::ssize(list)});
    all.insert(all.end(), list.begin(), list.end());
  };
  std::vector<Sequence*> chosen;
  for (Sequence& s : sequences) {
    if (!chooses(s, known_ones)) continue;
    chosen.push_back(&s);
    const LayerRows rows = known_ones ? LayerRows{} : brought.layer(layer, s.first_row);
    LayerChoice made{.choice = s.pass->choice->choose(layer, rows)};
    made.lists_fronts.resize(made.choice.fronts.size());
    made.lists_extra.resize(made.choice.extra.size());
    const std::vector<std::vector<int32_t>> places = places_in_runs(*s.cache, layer, made.choice.entries);
    for (size_t i = 0; i < made.choice.entries.size(); ++i)
      add(places.empty() ? made.choice.entries[i] : places[i], made.lists_own);
    for (size_t i = 0; i < made.choice.fronts.size(); ++i) {
      for (const std::span<const int32_t> list : made.choice.fronts[i].lists) add(list, made.lists_fronts[i]);
    }
    for (size_t i = 0; i < made.choice.extra.size(); ++i) {
      for (const std::span<const int32_t> list : made.choice.extra[i].lists) add(list, made.lists_extra[i]);
    }
    choice_of(s, known_ones) = std::move(made);
  }
  all.push_back(0);  // a null index would list everything
  const auto* at = static_cast<const int32_t*>(
      scratch_of(known_ones).lists.upload(all.data(), std::ssize(all) * int64_t{4}, stream_of(known_ones)));
  for (Sequence* s : chosen) {
    LayerChoice& made = choice_of(*s, known_ones);
    at = IndexList::place(made.lists_own, at);
    for (std::vector<IndexList>& lists : made.lists_fronts) at = IndexList::place(lists, at);
    for (std::vector<IndexList>& lists : made.lists_extra) at = IndexList::place(lists, at);
  }
  upload_chosen(layer, chosen, known_ones);
}

/// Uploads what selections point to in the host's memory and no slot holds; from then on they point to the device.
void DeviceModel::Stage::upload_chosen(int64_t layer, std::span<Sequence* const> chosen, bool known_ones) {
  SlotUpdates slots;
  UploadBatch uploads;
  for (Sequence* s : chosen) {
    std::vector<ExtraRuns>& extras = choice_of(*s, known_ones).choice.extra;
    if (!extras.empty()) s->cache->take(layer, extras, slots);
    std::erase_if(extras, [](const ExtraRuns& extra) { return !extra.attended; });  // the last ones
    for (ExtraRuns& extra : extras) {
      if (extra.queries != nullptr) uploads.add(extra.queries, s->rows * config.q_heads * shape().head_dim * 4);
    }
  }
  slot_bytes += slots.send(scratch_of(known_ones).entries, stream_of(known_ones));
  uploads.send(scratch_of(known_ones).entries, stream_of(known_ones));
}

/// Puts the pass's own entries behind those in slots that are attended with them.
void DeviceModel::Stage::store_fresh(const QkvRows& from) {
  const int64_t d = shape().head_dim;
  std::vector<kernels::RowStore> stores;
  for (const Sequence& s : sequences) {
    for (const ExtraRuns& extra : s.choice.extra) {
      for (int64_t head = 0; extra.fresh > 0 && head < shape().kv_heads; ++head) {
        const kernels::HeadRun& run = extra.runs[head];
        const auto add = [&](CellKind kind, const void* cells, const float* rows) {
          stores.push_back(
              {.to = {.kind = kind, .dtype = options.cache, .head_dim = d, .data = const_cast<void*>(cells)},
               .position = run.entries - extra.fresh,
               .count = extra.fresh,
               .rows = rows + s.first_row * from.kv_stride + head * d,
               .row_stride = from.kv_stride});
        };
        add(CellKind::keys, run.keys, from.keys);
        add(CellKind::values, run.values, from.values);
      }
    }
  }
  if (!stores.empty()) kernels::store_rows_cuda(stores, waited.entries, compute.stream());
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
