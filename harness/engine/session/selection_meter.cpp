#include "harness/engine/session/selection_meter.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "harness/cache/attend_plan.h"
#include "harness/cache/shared_front.h"

namespace kvarena {
namespace {

/// Whether exact entries take the place of some that are packed.
bool overlays(const AttentionPlan& plan) {
  return std::ranges::any_of(plan.items, [](const AttentionItem& item) { return !item.columns.empty(); });
}

/// Ascending positions that a query head attends to; where exact entries take the place of packed ones, exact ones.
std::vector<int32_t> attended_by(const AttentionPlan& plan, int64_t q_head) {
  std::vector<int32_t> all;
  for (const AttentionItem& item : plan.items) {
    if (overlays(plan) && (!item.packed.empty() || !item.steps.empty())) continue;
    const std::vector<int32_t> part = positions_of(item, q_head);
    all.insert(all.end(), part.begin(), part.end());
  }
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

int64_t shared(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  std::vector<int32_t> both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  return static_cast<int64_t>(both.size());
}

/// Unites the ascending lists of each group of query heads: one list a kv head of one a query head.
std::vector<std::vector<int32_t>> by_kv_head(const std::vector<std::vector<int32_t>>& lists, const LayerShape& shape) {
  std::vector<std::vector<int32_t>> united(static_cast<size_t>(shape.kv_heads));
  for (int64_t head = 0; head < shape.q_heads; ++head) {
    std::vector<int32_t> both;
    std::ranges::set_union(united[head / shape.group()], lists[head], std::back_inserter(both));
    united[head / shape.group()] = std::move(both);
  }
  return united;
}

/// Forgets the entries from `position` on, all of which the tail holds.
void take_back(EntrySegment& tail, int64_t position) {
  if (tail.entries(0) > 0) tail.truncate(position - tail.position(0, 0));
}

double mean_length(const std::vector<std::vector<int32_t>>& lists) {
  size_t total = 0;
  for (const auto& list : lists) total += list.size();
  return static_cast<double>(total) / static_cast<double>(lists.size());
}

}  // namespace

SelectionMeter::SelectionMeter(const KvCache& prompt) {
  so_far_.last.resize(prompt.layers.size());
  so_far_.layer_sums.resize(prompt.layers.size());
  for (const LayerCache& layer : prompt.layers) full_.push_back(growing_copy(layer, ledger_));
}

void SelectionMeter::follow(const KvCache& full, int64_t before, int64_t count) {
  for (size_t layer = 0; layer < full_.size(); ++layer) {
    take_back(full_[layer].tail(), before);
    const EntrySegment& tail = full.layers[layer].tail();
    full_[layer].tail().append_entries(tail, tail.entries(0) - count, count);
  }
}

SelectionMeter::Lists SelectionMeter::attended(const LayerCache& cache, const AttentionPlan& plan, int64_t all) {
  Lists lists;
  // In an exact layer with a window what left is what no query sees.
  const bool exact =
      cache.entries(0) == all || (cache.shape().window > 0 && cache.segments().size() == 1 && !cache.tail().ragged());
  if (cache.view == nullptr && exact) return lists;
  for (int64_t head = 0; head < cache.shape().q_heads; ++head) lists.push_back(attended_by(plan, head));
  return lists;
}

/// The full keys get the entry of the pass's first query, whatever was appended for guesses before.
void SelectionMeter::append_newest(int64_t layer, const LayerCache& cache, const LayerQueries& queries) {
  const LayerShape& shape = cache.shape();
  take_back(full_[layer].tail(), queries.position);
  std::vector<float> keys(static_cast<size_t>(shape.kv_heads * shape.head_dim));
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    const int64_t newest = cache.tail().entries(head) - queries.q_len;
    cache.tail().read_some(head, newest, 1, keys.data() + head * shape.head_dim, nullptr, shape.head_dim);
  }
  // Values do not decide what is attended.
  full_[layer].append(keys.data(), keys.data(), 1, shape.kv_heads * shape.head_dim, queries.position);
}

double SelectionMeter::covered(int64_t layer, const LayerQueries& first, const Lists& attended) {
  if (attended.empty()) return 1;
  const LayerCache& full = full_[layer];
  const LayerShape& shape = full.shape();
  std::vector<float> out(static_cast<size_t>(shape.q_heads * shape.head_dim));
  std::vector<float> max(static_cast<size_t>(shape.q_heads));
  std::vector<float> sum(max.size());
  std::vector<float> lse(max.size());
  kernels::AttentionState state{.out = out.data(), .max = max.data(), .sum = sum.data()};
  kernels::init_attention(state, 1, shape.q_heads, shape.head_dim, shape.sinks);
  attend(full.plan(first), state);
  kernels::finish_attention(state, 1, shape.q_heads, shape.head_dim, lse.data());
  const int64_t n = full.entries(0);
  std::vector<float> probabilities(static_cast<size_t>(shape.q_heads * n), 0.0F);
  add_probabilities(full.plan(first), lse.data(), probabilities.data(), n);
  double total = 0;
  const int64_t origin = first.position + 1 - n;
  for (int64_t head = 0; head < shape.q_heads; ++head) {
    for (const int32_t position : attended[head]) {
      if (position <= first.position) total += probabilities[head * n + position - origin];
    }
  }
  return std::clamp(total / static_cast<double>(shape.q_heads), 0.0, 1.0);
}

void SelectionMeter::note_selection(int64_t layer, const LayerShape& shape, Lists now, int64_t position) {
  const int64_t entry_bytes = shape.entry_bytes() / shape.kv_heads;
  Lists& before = so_far_.last[layer];
  if (!now.empty()) {
    so_far_.selected = true;
    now = by_kv_head(now, shape);
    for (auto& list : now) std::erase_if(list, [&](int32_t entry) { return entry >= position; });
  }
  const bool first = so_far_.steps.empty();
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    const int64_t there = full_[layer].entries(0) - 1;
    const int64_t wanted = now.empty() ? there : static_cast<int64_t>(now[head].size());
    const int64_t had = before.empty() ? wanted
                        : now.empty()  ? static_cast<int64_t>(before[head].size())
                                       : shared(before[head], now[head]);
    if (first ? !now.empty() : !before.empty() || !now.empty()) {
      step_.loaded_bytes += (first ? wanted : wanted - had) * entry_bytes;
      if (!first && wanted > 0) {
        step_.overlap += static_cast<double>(had) / static_cast<double>(wanted);
        ++overlaps_;
      }
    }
    // In the next step the query's own entry is an old one, and it was attended.
    if (!now.empty()) now[head].push_back(static_cast<int32_t>(position));
  }
  before = std::move(now);
}

void SelectionMeter::before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) {
  ForwardingHooks::before_attention(layer, cache, queries);
  append_newest(layer, cache, queries);
  const AttentionPlan plan = cache.plan(queries);
  Lists lists = attended(cache, plan, full_[layer].entries(0) + queries.q_len - 1);
  const LayerQueries first{.q = queries.q, .q_len = 1, .q_stride = queries.q_stride, .position = queries.position};
  const double hit = covered(layer, first, lists);
  if (layer == 0) {
    step_ = {.hit_rate = 0};
    overlaps_ = 0;
  }
  step_.hit_rate += hit;
  so_far_.layer_sums[layer] += hit;
  const bool all = lists.empty() || overlays(plan);
  step_.attended += all ? static_cast<double>(full_[layer].entries(0)) : mean_length(by_kv_head(lists, cache.shape()));
  // Entries that were dropped are not there to be loaded: only a view selects.
  if (cache.view == nullptr) lists.clear();
  note_selection(layer, cache.shape(), std::move(lists), queries.position);
}

void SelectionMeter::after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) {
  ForwardingHooks::after_attention(layer, cache, queries, lse);
  if (layer + 1 < static_cast<int64_t>(full_.size())) return;
  step_.hit_rate /= static_cast<double>(full_.size());
  step_.attended /= static_cast<double>(full_.size());
  step_.overlap =
      overlaps_ > 0 ? step_.overlap / static_cast<double>(overlaps_) : std::numeric_limits<double>::quiet_NaN();
  so_far_.steps.push_back(step_);
}

std::vector<double> SelectionMeter::layer_hit_rates() const {
  std::vector<double> means = so_far_.layer_sums;
  for (double& mean : means) mean /= static_cast<double>(std::max<size_t>(1, so_far_.steps.size()));
  return means;
}

}  // namespace kvarena
