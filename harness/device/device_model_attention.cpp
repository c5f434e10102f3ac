// A layer's work between its projections: new entries, attention over caches, and what the bus brings for it.
#include "harness/device/device_model_impl.h"

namespace kvarena::device {

using kernels::CellKind;
using kernels::Cells;

/// Brings what layer `layer` attends to of caches on the host, and by choices that are known, on the bus' stream.
void DeviceModel::Stage::fetch(int64_t layer) {
  const size_t turn = static_cast<size_t>(layer % 2);
  if (layer >= begin + 2) attended[turn].hold(bus.stream());  // layers share windows two by two when everything comes
  std::vector<kernels::EntryMerge> merges;
  for (const Sequence& s : sequences) {
    if (!on_host(s)) continue;
    DeviceCache& cache = *s.cache;
    DeviceCache::Window& to = cache.chosen_ ? cache.spare(layer) : cache.window(layer);
    const int32_t* sources = told.lists + s.first_list;
    for (int64_t h = 0; h < shape().kv_heads; ++h) {
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        const Cells far = cache.cells(layer, h, kind);
        merges.push_back({.near = cache.chosen_ ? cache.cells(cache.window(layer), h, kind) : far,
                          .far = far,
                          .source = cache.chosen_ ? sources : nullptr,
                          .count = cache.counts_[h],
                          .to = cache.cells(to, h, kind)});
      }
      sources += std::ssize(cache.lists_[h]);
    }
    // The spare takes the layer's place and the layer's memory is the next spare: the bus comes to it after this.
    if (cache.chosen_) std::swap(cache.window(layer), cache.spare(layer));
  }
  kernels::merge_entries_cuda(merges, bus_scratch, bus.stream());
  if (any_chooses(/*known_ones=*/true)) choose(layer, /*known_ones=*/true);
  fetched[turn].record(bus.stream());
}

void DeviceModel::Stage::append(int64_t layer, const QkvRows& from, kernels::CudaScratch& with) {
  std::vector<kernels::RowStore> stores;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = sequences[i];
    if (s.cache == nullptr) continue;
    DeviceCache& cache = *s.cache;
    for (int64_t h = 0; h < shape().kv_heads; ++h) {
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        const float* first = kind == CellKind::keys ? from.keys : from.values;
        kernels::RowStore store{.to = cache.cells(layer, h, kind),
                                .count = s.rows,
                                .rows = first + s.first_row * from.kv_stride + h * shape().head_dim,
                                .row_stride = from.kv_stride,
                                .before = told.before + i};
        store.position = -cache.dropped(layer)[h];
        stores.push_back(store);
        if (!on_host(s)) continue;
        store.to = cache.cells(cache.window(layer), h, kind);
        store.position = cache.counts_[h];
        store.before = nullptr;
        stores.push_back(store);
      }
    }
  }
  if (!stores.empty()) kernels::store_rows_cuda(stores, with, compute.stream());
}

kernels::AttentionState DeviceModel::Stage::part_of(const kernels::AttentionState& all, int64_t first_row) const {
  const int64_t first = first_row * config.q_heads;
  return {.out = all.out + first * shape().head_dim, .max = all.max + first, .sum = all.sum + first};
}

/// Some rows' queries and their part of the state of all rows.
kernels::AttendProblem DeviceModel::Stage::problem_of(int64_t first_row, int64_t count, const QkvRows& from,
                                                      const kernels::AttentionState& all) const {
  return {.q = from.q + first_row * from.q_stride,
          .q_len = count,
          .q_token_stride = from.q_stride,
          .q_head_stride = shape().head_dim,
          .dtype = options.cache,
          .state = part_of(all, first_row)};
}

kernels::AttendArgs DeviceModel::Stage::attend_args(std::span<const kernels::AttendProblem> problems) const {
  return {.problems = problems,
          .q_heads = config.q_heads,
          .kv_heads = shape().kv_heads,
          .head_dim = shape().head_dim,
          .scale = attention.scale()};
}

/// A sequence whose tokens follow each other.
void DeviceModel::Stage::add_chain(int64_t layer, size_t sequence, const QkvRows& from,
                                   const kernels::AttentionState& all, AttentionCall& call) const {
  const Sequence& s = sequences[sequence];
  DeviceCache& cache = *s.cache;
  kernels::AttendProblem& problem = call.problems.emplace_back(problem_of(s.first_row, s.rows, from, all));
  problem.runs = call.runs.data() + call.runs.size();
  problem.causal = true;
  problem.window = s.choice.window > 0 ? s.choice.window : shapes[layer].window;
  const bool kept = !s.kept.empty() && !s.kept[layer].empty(), chosen = !sees_all(*s.pass, layer) && !on_host(s);
  const int32_t* index = told.lists + s.first_list;
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    const auto data = [&](CellKind kind) {
      return on_host(s) ? cache.cells(cache.window(layer), h, kind).data : cache.cells(layer, h, kind).data;
    };
    const int64_t listed = std::ssize(cache.lists_[h]);
    const IndexList list = kept ? s.kept[layer][h] : chosen ? IndexList{index, listed} : IndexList{};
    call.runs.push_back({.keys = data(CellKind::keys),
                         .values = data(CellKind::values),
                         .entries = on_host(s) ? cache.counts_[h] + s.rows : s.most - cache.dropped(layer)[h],
                         .index = list.entries,
                         .index_count = list.count});
    index += listed;
  }
  const bool grows = !on_host(s) && !kept && !chosen;
  call.growth.push_back(grows ? kernels::RunGrowth{told.before + sequence, cache.dropped(layer).data()}
                              : kernels::RunGrowth{});
}

/// The rows of a tree, each with what it alone sees.
void DeviceModel::Stage::add_paths(int64_t layer, const Sequence& s, const QkvRows& from,
                                   const kernels::AttentionState& all, AttentionCall& call) const {
  const int64_t shared_bytes = kernels::cell_bytes(s.shared, shape().head_dim, options.cache);
  const std::vector<kernels::HeadRun> whole = s.cache->runs(layer);
  const int32_t* index = told.lists + s.first_list;
  for (int64_t row = 0; row < s.rows; ++row) {
    kernels::AttendProblem& problem = call.problems.emplace_back(problem_of(s.first_row + row, 1, from, all));
    problem.runs = call.runs.data() + call.runs.size();
    const int64_t listed = std::ssize(s.paths[row]);
    for (const kernels::HeadRun& run : whole) {
      call.runs.push_back({.keys = static_cast<const char*>(run.keys) + shared_bytes,
                           .values = static_cast<const char*>(run.values) + shared_bytes,
                           .entries = s.most - s.shared,
                           .index = index,
                           .index_count = listed});
    }
    index += listed;
    call.growth.emplace_back();
  }
}

/// Reads the entries that all rows of a tree see once for all of them.
void DeviceModel::Stage::attend_shared(int64_t layer, const QkvRows& from, const kernels::AttentionState& all,
                                       kernels::CudaScratch& with) {
  std::vector<std::vector<kernels::HeadRun>> runs;
  std::vector<kernels::AttendProblem> problems;
  for (const Sequence& s : sequences) {
    if (s.shared == 0) continue;
    for (kernels::HeadRun& run : runs.emplace_back(s.cache->runs(layer))) run.entries = s.shared;
    problems.emplace_back(problem_of(s.first_row, s.rows, from, all)).runs = runs.back().data();
  }
  if (!problems.empty()) kernels::attend_cuda(attend_args(problems), with, compute.stream());
}

void DeviceModel::Stage::attend(int64_t layer, const QkvRows& from, kernels::CudaScratch& with) {
  AttentionCall call, by_query_head;
  int64_t problems = 0;
  for (const Sequence& s : sequences) problems += s.paths.empty() ? 1 : s.rows;
  call.runs.reserve(static_cast<size_t>(problems * shape().kv_heads));
  by_query_head.runs.reserve(static_cast<size_t>(problems * config.q_heads));
  const kernels::AttentionState all{
      .out = seen.data(), .max = running.data(), .sum = running.data() + rows * config.q_heads};
  bool any = false;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].cache == nullptr) continue;
    any = true;
    if (!sequences[i].choice.own) continue;
    if (!sequences[i].lists_own.empty()) {
      const bool grouped = std::ssize(sequences[i].lists_own) == shape().kv_heads;
      add_chosen(layer, sequences[i], from, all, grouped ? call : by_query_head);
    } else if (sequences[i].paths.empty()) {
      add_chain(layer, i, from, all, call);
    } else {
      add_paths(layer, sequences[i], from, all, call);
    }
  }
  if (!any) return;
  kernels::init_attention_cuda(all, rows, config.q_heads, shape().head_dim, compute.stream());
  attend_segments(layer, from, all, with);
  attend_extra(from, all, with);
  attend_shared(layer, from, all, with);
  attend(call.problems, by_query_head.problems, with, call.growth);
  float* const denominators = brought.what() == Download::everything ? lse.data() : nullptr;
  kernels::finish_attention_cuda(all, rows, config.q_heads, shape().head_dim, denominators, compute.stream());
}

/// Rows of sequences without a cache go to the host; what it attended takes the place of what was not.
void DeviceModel::Stage::attend_on_host(int64_t layer) {
  if (!any_attends_on_host()) return;
  kernels::cuda_synchronize(compute.stream());
  const int64_t width = config.q_heads * shape().head_dim;
  for (const Sequence& s : sequences) {
    if (s.cache != nullptr) continue;
    float* const attended = host_seen.data() + s.first_row * width;
    s.pass->host->attend(layer, brought.layer(layer, s.first_row), attended);
    kernels::cuda_upload(seen.data() + s.first_row * width, attended, s.rows * width * 4, compute.stream());
  }
}

void DeviceModel::Stage::attention_block(int64_t layer, kernels::CudaScratch& with) {
  const DeviceLayerWeights& w = weights.layers[layer];
  const PassRows pass{.rows = rows, .cos = told.cos, .sin = told.sin, .stream = compute.stream()};
  normalise(x.data(), w.attention_norm, normed.data(), rows);
  std::visit(
      [&](const auto& kind) {
        const QkvRows from = attention.input(kind, normed.data(), pass);
        append(layer, from, with);
        brought.bring_inputs(layer, from, normed.data(), compute.stream());
        choose_on_host(layer, from);
        attend(layer, from, with);
        brought.bring_denominators(layer, lse.data(), compute.stream());
        attend_on_host(layer);
        attention.output(kind, seen.data(), x.data(), pass);
      },
      w.attention);
}

}  // namespace kvarena::device
