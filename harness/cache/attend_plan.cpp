#include "harness/cache/attend_plan.h"

#include <algorithm>
#include <numeric>

#include "harness/cache/dequantize.h"
#include "harness/cache/sliding_window.h"
#include "harness/cache/tree_view.h"
#include "harness/core/error.h"
#include "kernels/column_sums/column_sums.h"

namespace kvarena {
namespace {

using kernels::CellKind;
using kernels::HeadRun;

constexpr int32_t kNone = 0;  // a null index would list everything

/// Runs of an item, or of a dequantised chunk of it, as kernels take them.
struct Part {
  std::vector<HeadRun> runs;  // [kv_heads], or [q_heads] where every query head has its list
  DType dtype;
  int64_t first;  // entry of the item that the runs begin with
};

void list(HeadRun& run, std::span<const int32_t> entries) {
  run.index = entries.empty() ? &kNone : entries.data();
  run.index_count = std::ssize(entries);
}

/// Runs of what an item lists, or of its entries from `first` on.
std::vector<HeadRun> listed(const AttentionItem& item, const std::vector<HeadRun>& all, int64_t first) {
  std::vector<HeadRun> runs = item.lists.empty() ? all : std::vector<HeadRun>();
  runs.reserve(item.lists.size());
  const size_t lists_of_run = item.lists.size() / all.size();
  for (size_t i = 0; i < item.lists.size(); ++i) list(runs.emplace_back(all[i / lists_of_run]), item.lists[i]);
  for (size_t i = 0; i < item.biases.size(); ++i) runs[i].bias = item.biases[i].data() + first;
  return runs;
}

/// Calls visit(part) for the parts of an item in order: the item as it lies, or where it has steps chunks of
/// kernels::kChunk entries, whose bounds leave the bits of attention as they are. What is listed is one part.
template <class Visit>
void each_part(const AttentionItem& item, const Visit& visit) {
  if (item.steps.empty()) return visit(Part{listed(item, item.runs, 0), item.dtype, 0});
  const LayerShape& shape = item.from->shape();
  const int64_t total = std::ranges::max(item.runs, {}, &HeadRun::entries).entries;
  const int64_t step = item.lists.empty() ? kernels::kChunk : total;
  static thread_local DequantChunk memory;  // of whole chunks, which every step asks for again
  DequantChunk list;
  DequantChunk& chunk = item.lists.empty() ? memory : list;
  for (chunk.first = 0; chunk.first < total; chunk.first += step) {
    chunk.count = std::min(step, total - chunk.first);
    dequantize(item, chunk);
    const int64_t floats = kernels::cells_for(chunk.count) * kernels::kCell * shape.head_dim;
    std::vector<HeadRun> runs;
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const int64_t entries = std::clamp<int64_t>(item.runs[h].entries - chunk.first, 0, chunk.count);
      runs.push_back({.keys = &chunk.keys[h * floats], .values = &chunk.values[h * floats], .entries = entries});
    }
    visit(Part{listed(item, runs, chunk.first), DType::f32, chunk.first});
  }
}

/// Calls visit(item, queries) for each item of a plan, in place of those that are gathered for this use the items of
/// what was, with the plan's queries or those of its rows that the gathered items are for.
template <class Visit>
void each_item(const AttentionPlan& plan, const Visit& visit) {
  for (const AttentionItem& item : plan.items) {
    if (!item.gather) {
      visit(item, plan.queries);
      continue;
    }
    const std::unique_ptr<Segment> gathered = item.gather();
    AttentionPlan own{.queries = plan.queries, .items = {}, .columns = item.column};
    gathered->plan(plan.queries, own);
    for (const AttentionItem& each : own.items) visit(each, own.queries);
  }
}

/// The queries that see an item, as its stored keys want them; `memory` holds them where they are mapped.
LayerQueries queries_of(const AttentionItem& item, LayerQueries queries, std::vector<float>& memory) {
  const LayerShape& shape = item.from->shape();
  const int64_t row = shape.q_heads * shape.head_dim;
  if (item.queries != nullptr) {
    queries.q = item.queries;
    queries.q_stride = row;
  }
  queries.q += item.first_row * queries.q_stride;
  queries.q_len -= item.first_row;
  queries.position += item.first_row;
  if (!item.key_transform) return queries;
  memory.resize(static_cast<size_t>(queries.q_len * row));
  for (int64_t t = 0; t < queries.q_len; ++t) {
    std::copy_n(queries.q + t * queries.q_stride, row, &memory[t * row]);
    for (int64_t h = 0; h < shape.q_heads; ++h)
      item.key_transform->apply_to_queries(h / shape.group(), &memory[t * row + h * shape.head_dim], 1);
  }
  queries.q = memory.data();
  queries.q_stride = row;
  return queries;
}

LayerQueries one_query(const LayerQueries& queries, int64_t t) {
  return {.q = queries.q + t * queries.q_stride,
          .q_len = 1,
          .q_stride = queries.q_stride,
          .position = queries.position + t};
}

/// The state of the queries from row `first` on.
kernels::AttentionState rows_from(const kernels::AttentionState& state, const LayerShape& shape, int64_t first) {
  const int64_t row = first * shape.q_heads;
  return {.out = state.out + row * shape.head_dim, .max = state.max + row, .sum = state.sum + row};
}

void attend_runs(const LayerShape& shape, const Part& part, const Visibility& sees, const LayerQueries& queries,
                 const kernels::AttentionState& state, kernels::AttentionReader* reader = nullptr) {
  const kernels::AttendProblem problem{.q = queries.q,
                                       .q_len = queries.q_len,
                                       .q_token_stride = queries.q_stride,
                                       .q_head_stride = shape.head_dim,
                                       .runs = part.runs.data(),
                                       .dtype = part.dtype,
                                       .causal = sees.rule == Visibility::Rule::newest,
                                       .window = sees.window,
                                       .chunked = sees.chunked,
                                       .first_position = sees.first_position,
                                       .state = state,
                                       .reader = reader};
  kernels::attend({.problems = {&problem, 1},
                   .q_heads = shape.q_heads,
                   .kv_heads = std::ssize(part.runs),
                   .head_dim = shape.head_dim,
                   .scale = attention_scale(shape),
                   .arithmetic = shape.arithmetic});
}

void sum_runs(const LayerShape& shape, const Part& part, const Visibility& sees, const LayerQueries& queries,
              const float* lse, float* sums, int64_t row_stride) {
  const kernels::ColumnSumsProblem problem{.q = queries.q,
                                           .q_len = queries.q_len,
                                           .q_token_stride = queries.q_stride,
                                           .q_head_stride = shape.head_dim,
                                           .lse = lse,
                                           .runs = part.runs.data(),
                                           .dtype = part.dtype,
                                           .causal = sees.rule == Visibility::Rule::newest,
                                           .window = sees.window,
                                           .sums = sums,
                                           .sums_stride = row_stride,
                                           .chunked = sees.chunked,
                                           .first_position = sees.first_position};
  kernels::column_sums({.problems = {&problem, 1},
                        .q_heads = shape.q_heads,
                        .kv_heads = std::ssize(part.runs),
                        .head_dim = shape.head_dim,
                        .scale = attention_scale(shape),
                        .arithmetic = shape.arithmetic});
}

/// [kv_heads] original positions of an item's entries; empty where nobody asks for them.
std::vector<std::vector<int32_t>> positions_of(const AttentionItem& item) {
  std::vector<std::vector<int32_t>> positions;
  for (int64_t h = 0; item.sees.rule == Visibility::Rule::positions && h < item.from->shape().kv_heads; ++h)
    positions.push_back(item.from->positions(h));
  return positions;
}

/// A part as one query after the other sees it by position: runs that list what lies in its window.
class WindowedPart {
 public:
  WindowedPart(const Visibility& sees, const Part& part, const std::vector<std::vector<int32_t>>& positions)
      : window_(sees.window), chunked_(sees.chunked), whole_(part), part_(part), first_places_(part.runs.size()) {
    for (size_t i = 0; i < part_.runs.size(); ++i) {
      const HeadRun& run = part_.runs[i];
      std::vector<int32_t>& entries = lists_.emplace_back(run.index, run.index + run.index_count);
      if (run.index == nullptr) {
        entries.resize(static_cast<size_t>(run.entries));
        std::iota(entries.begin(), entries.end(), 0);
      }
      std::vector<int32_t>& own = positions_.emplace_back();
      const std::vector<int32_t>& all = positions[i / (part_.runs.size() / positions.size())];
      for (const int32_t entry : entries) own.push_back(all[static_cast<size_t>(part_.first + entry)]);
    }
  }

  /// The part for the query at `position`; valid until the next call.
  const Part& at(int64_t position) {
    for (size_t i = 0; i < part_.runs.size(); ++i) {
      const std::vector<int32_t>& all = positions_[i];
      const int64_t earliest = oldest_seen(window_, chunked_, position);
      const auto begin = std::lower_bound(all.begin(), all.end(), earliest);
      const auto end = std::upper_bound(begin, all.end(), position);
      first_places_[i] = begin - all.begin();
      list(part_.runs[i], {lists_[i].data() + first_places_[i], static_cast<size_t>(end - begin)});
      if (whole_.runs[i].bias != nullptr) part_.runs[i].bias = whole_.runs[i].bias + first_places_[i];
    }
    return part_;
  }
  /// [runs] place in its list of the first entry that is seen.
  [[nodiscard]] const std::vector<int64_t>& first_places() const { return first_places_; }

 private:
  int64_t window_;
  bool chunked_;
  Part whole_, part_;
  std::vector<std::vector<int32_t>> lists_;      // [runs] entries
  std::vector<std::vector<int32_t>> positions_;  // [runs] their positions
  std::vector<int64_t> first_places_;
};

/// Whole chunks before a tree are seen by all its rows alike and read once; of the rest of the run each row has a list.
void attend_paths(const AttentionItem& item, Part part, const LayerQueries& queries,
                  const kernels::AttentionState& state) {
  const LayerShape& shape = item.from->shape();
  KVARENA_ASSERT(item.biases.empty(), "the entries of a tree have no biases");
  const int64_t before = part.runs.front().entries - std::ssize(item.sees.parents);
  const int64_t shared = entries_before_paths(before), bytes = kernels::cell_bytes(shared, shape.head_dim, part.dtype);
  Part front = part;
  for (HeadRun& run : front.runs) run.entries = shared;
  if (shared > 0) attend_runs(shape, front, {}, queries, state);
  for (HeadRun& run : part.runs) {
    run.keys = static_cast<const std::byte*>(run.keys) + bytes;
    run.values = static_cast<const std::byte*>(run.values) + bytes;
    run.entries -= shared;
  }
  for (int64_t t = 0; t < queries.q_len; ++t) {
    const std::vector<int32_t> path = tree_path(item.sees.parents, t, before, shared);
    for (HeadRun& run : part.runs) list(run, path);
    attend_runs(shape, part, {}, one_query(queries, t), rows_from(state, shape, t));
  }
}

void attend_part(const AttentionItem& item, const Part& part, const std::vector<std::vector<int32_t>>& positions,
                 const LayerQueries& queries, const kernels::AttentionState& state, kernels::AttentionReader* reader) {
  const LayerShape& shape = item.from->shape();
  KVARENA_ASSERT(reader == nullptr || item.sees.rule == Visibility::Rule::newest,
                 "entries with gaps are seen through lists that a reader does not know");
  if (item.sees.rule == Visibility::Rule::paths) return attend_paths(item, part, queries, state);
  if (item.sees.rule != Visibility::Rule::positions) return attend_runs(shape, part, item.sees, queries, state, reader);
  WindowedPart windowed(item.sees, part, positions);
  for (int64_t t = 0; t < queries.q_len; ++t)
    attend_runs(shape, windowed.at(queries.position + t), {}, one_query(queries, t), rows_from(state, shape, t));
}

/// Where values are mapped they are attended to in a state of their own, which is freed of the map before it joins.
void attend_item(const AttentionItem& item, const LayerQueries& all, const kernels::AttentionState& state,
                 kernels::AttentionReader* reader) {
  const LayerShape& shape = item.from->shape();
  std::vector<float> mapped, memory;
  const LayerQueries queries = queries_of(item, all, mapped);
  if (queries.q_len <= 0) return;
  kernels::AttentionState to = rows_from(state, shape, item.first_row);
  const int64_t rows = queries.q_len * shape.q_heads, d = shape.head_dim;
  if (item.value_transform) {
    memory.resize(static_cast<size_t>(rows * (d + 2)));
    to = {.out = memory.data(), .max = memory.data() + rows * d, .sum = memory.data() + rows * (d + 1)};
    kernels::init_attention(to, queries.q_len, shape.q_heads, d);
  }
  const std::vector<std::vector<int32_t>> positions = positions_of(item);
  each_part(item, [&](const Part& part) { attend_part(item, part, positions, queries, to, reader); });
  if (!item.value_transform) return;
  for (int64_t row = 0; row < rows; ++row)
    item.value_transform->undo(row % shape.q_heads / shape.group(), to.out + row * d, 1);
  kernels::merge_attention(rows_from(state, shape, item.first_row), to, rows, d);
}

/// Sums of an item among those of its plan.
class ItemSums {
 public:
  ItemSums(const AttentionItem& item, float* sums, int64_t stride)
      : item_(&item), sums_(sums + item.column), stride_(stride) {}

  /// Whether places of lists lie one behind the other.
  [[nodiscard]] bool direct() const { return item_->columns.empty(); }
  [[nodiscard]] float* from(int64_t place) const { return sums_ + place; }
  [[nodiscard]] int64_t stride() const { return stride_; }
  [[nodiscard]] float& at(int64_t q_head, int64_t place) const {
    const int64_t kv_head = q_head / item_->from->shape().group();
    return sums_[q_head * stride_ + (direct() ? place : item_->columns[kv_head][place])];
  }

 private:
  const AttentionItem* item_;
  float* sums_;
  int64_t stride_;
};

int64_t count_of(const HeadRun& run) { return run.index != nullptr ? run.index_count : run.entries; }

/// Sums of runs, each added to column(query head, place in the run's list); `found` is memory.
template <class Column>
void scatter_sums(const LayerShape& shape, const Part& part, const LayerQueries& queries, const float* lse,
                  std::vector<float>& found, const Column& column) {
  int64_t widest = 0;
  for (const HeadRun& run : part.runs) widest = std::max(widest, count_of(run));
  found.assign(static_cast<size_t>(shape.q_heads * widest), 0.0F);
  sum_runs(shape, part, {}, queries, lse, found.data(), widest);
  const int64_t heads_of_run = shape.q_heads / std::ssize(part.runs);
  for (int64_t h = 0; h < shape.q_heads; ++h) {
    const int64_t count = count_of(part.runs[h / heads_of_run]);
    for (int64_t i = 0; i < count; ++i) column(h, i) += found[h * widest + i];
  }
}

void sum_paths(const AttentionItem& item, Part part, const LayerQueries& queries, const float* lse,
               const ItemSums& sums) {
  const LayerShape& shape = item.from->shape();
  const int64_t before = part.runs.front().entries - std::ssize(item.sees.parents);
  std::vector<float> found;
  for (int64_t t = 0; t < queries.q_len; ++t) {
    const std::vector<int32_t> path = tree_path(item.sees.parents, t, before, 0);
    for (HeadRun& run : part.runs) list(run, path);
    scatter_sums(shape, part, one_query(queries, t), lse + t * shape.q_heads, found,
                 [&](int64_t h, int64_t i) -> float& { return sums.at(h, path[static_cast<size_t>(i)]); });
  }
}

void sum_part(const AttentionItem& item, const Part& part, const std::vector<std::vector<int32_t>>& positions,
              const LayerQueries& queries, const float* lse, const ItemSums& sums) {
  const LayerShape& shape = item.from->shape();
  std::vector<float> found;
  if (item.sees.rule == Visibility::Rule::paths) return sum_paths(item, part, queries, lse, sums);
  if (item.sees.rule == Visibility::Rule::positions) {
    WindowedPart windowed(item.sees, part, positions);
    const int64_t heads_of_run = shape.q_heads / std::ssize(part.runs);
    for (int64_t t = 0; t < queries.q_len; ++t) {
      const Part& seen = windowed.at(queries.position + t);
      scatter_sums(shape, seen, one_query(queries, t), lse + t * shape.q_heads, found,
                   [&](int64_t h, int64_t i) -> float& {
                     return sums.at(h, part.first + windowed.first_places()[h / heads_of_run] + i);
                   });
    }
    return;
  }
  if (sums.direct()) return sum_runs(shape, part, item.sees, queries, lse, sums.from(part.first), sums.stride());
  scatter_sums(shape, part, queries, lse, found, [&](int64_t h, int64_t i) -> float& { return sums.at(h, i); });
}

/// Whether a copy elsewhere has added the probabilities of an item.
bool mirror_adds(const AttentionItem& item, const LayerQueries& queries, const float* lse, const ItemSums& sums) {
  EntryMirror* const mirror = item.from->mirror();
  const bool may =
      mirror != nullptr && item.steps.empty() && item.biases.empty() && item.sees.rule <= Visibility::Rule::newest;
  if (!may) return false;
  if (sums.direct()) return mirror->add_probabilities(item, queries, lse, sums.from(0), sums.stride());
  const LayerShape& shape = item.from->shape();
  size_t widest = 0;
  for (const auto& list : item.columns) widest = std::max(widest, list.size());
  std::vector<float> found(static_cast<size_t>(shape.q_heads) * widest);
  if (!mirror->add_probabilities(item, queries, lse, found.data(), static_cast<int64_t>(widest))) return false;
  for (int64_t h = 0; h < shape.q_heads; ++h) {
    const auto count = std::ssize(item.columns[h / shape.group()]);
    for (int64_t i = 0; i < count; ++i) sums.at(h, i) += found[h * static_cast<int64_t>(widest) + i];
  }
  return true;
}

/// Numbers of one side of a run of `kv_head`, [entries, head_dim], freed of its transform.
void load_run(const AttentionItem& item, const Part& part, const HeadRun& run, int64_t kv_head, CellKind kind,
              float* rows) {
  load_stored({.kind = kind, .dtype = part.dtype, .head_dim = item.from->shape().head_dim}, run, 0, run.entries, rows);
  const RowTransformPtr& transform = kind == CellKind::keys ? item.key_transform : item.value_transform;
  if (transform) transform->undo(kv_head, rows, run.entries);
}

/// One side of a part, to its columns of `to`.
void read_part(const AttentionItem& item, const Part& part, int64_t kv_head, CellKind kind, float* to) {
  const LayerShape& shape = item.from->shape();
  const HeadRun& run = part.runs[kv_head * (std::ssize(part.runs) / shape.kv_heads)];
  const int64_t d = shape.head_dim;
  to += item.column * d;
  if (run.index == nullptr && item.columns.empty())
    return load_run(item, part, run, kv_head, kind, to + part.first * d);
  std::vector<float> rows(static_cast<size_t>(run.entries * d));
  load_run(item, part, run, kv_head, kind, rows.data());
  for (int64_t i = 0; i < count_of(run); ++i) {
    const int64_t entry = run.index != nullptr ? run.index[i] : i;
    const int64_t column = item.columns.empty() ? part.first + i : item.columns[kv_head][i];
    std::copy_n(&rows[entry * d], d, to + column * d);
  }
}

}  // namespace

void attend(const AttentionPlan& plan, const kernels::AttentionState& state, kernels::AttentionReader* reader) {
  each_item(plan, [&](const AttentionItem& item, const LayerQueries& queries) {
    const kernels::AttentionState to = rows_from(state, item.from->shape(), queries.position - plan.queries.position);
    attend_item(item, queries, to, &item == &plan.items.back() ? reader : nullptr);
  });
}

void add_probabilities(const AttentionPlan& plan, const float* lse, float* sums, int64_t row_stride) {
  each_item(plan, [&](const AttentionItem& item, const LayerQueries& rows) {
    std::vector<float> mapped;
    const LayerQueries queries = queries_of(item, rows, mapped);
    if (queries.q_len <= 0) return;
    const float* const own = lse + (queries.position - plan.queries.position) * item.from->shape().q_heads;
    const ItemSums to(item, sums, row_stride);
    if (mirror_adds(item, queries, own, to)) return;
    const std::vector<std::vector<int32_t>> positions = positions_of(item);
    each_part(item, [&](const Part& part) { sum_part(item, part, positions, queries, own, to); });
  });
}

void read(const AttentionPlan& plan, int64_t kv_head, float* keys, float* values) {
  each_item(plan, [&](const AttentionItem& item, const LayerQueries& /*queries*/) {
    each_part(item, [&](const Part& part) {
      if (keys != nullptr) read_part(item, part, kv_head, CellKind::keys, keys);
      if (values != nullptr) read_part(item, part, kv_head, CellKind::values, values);
    });
  });
}

void Segment::read(int64_t kv_head, float* keys, float* values) const {
  kvarena::read(plan_of(*this, {}), kv_head, keys, values);
}

}  // namespace kvarena
