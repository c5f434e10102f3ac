#include "harness/device/host_sequence.h"

#include <algorithm>
#include <utility>

#include "harness/cache/tree_view.h"
#include "harness/device/view_selection.h"
#include "harness/model/attend_sequence.h"

namespace kvarena::device {

const float* host_queries(const DeviceModel& model, const QkvRows& brought, int64_t count, std::vector<float>& memory) {
  const float factor = model.query_factor();
  if (factor == 1) return brought.q;
  memory.assign(brought.q, brought.q + count * brought.q_stride);
  for (float& number : memory) number *= factor;
  return memory.data();
}

HostSequence::HostSequence(const SequencePass& pass, const DeviceModel& model) : pass_(&pass), model_(&model) {
  append_positions(pass.cache->length, std::ssize(pass.tokens), pass.parents, positions_);
}

void HostSequence::attend(int64_t layer, const LayerRows& rows, float* attended) {
  const int64_t count = std::ssize(pass_->tokens);
  const int64_t heads = count * pass_->cache->layers[layer].shape().q_heads;
  running_.resize(static_cast<size_t>(2 * heads));
  lse_.resize(static_cast<size_t>(heads));
  QkvRows from = rows.attention;
  from.q = host_queries(*model_, from, count, queries_);
  attend_sequence(layer, *pass_, from, rows.hidden,
                  {.attended = attended, .running = running_.data(), .lse = lse_.data()});
}

AttentionSelection ChosenSequence::select(int64_t layer, const LayerQueries& queries) const {
  LayerCache& cache = pass_->cache->layers[layer];
  pass_->hooks->before_attention(layer, cache, queries);
  return selection_of(cache, queries);
}

AttentionSelection ChosenSequence::select_known(int64_t layer) const {
  return select(layer,
                {.q_len = std::ssize(pass_->tokens), .position = pass_->cache->length, .tokens = pass_->tokens.data()});
}

std::optional<SharedChoice> ChosenSequence::shared(int64_t layers) {
  if (!known_) return std::nullopt;
  const int64_t length = pass_->cache->length, fresh = std::ssize(pass_->tokens);
  const auto ends_with_own = [&](std::span<const int32_t> list) {
    return std::ssize(list) >= fresh && list[list.size() - static_cast<size_t>(fresh)] == length;
  };
  SharedChoice all{.lists = {}, .whole = std::vector<bool>(pass_->cache->layers.size(), true)};
  for (int64_t layer = 0; layer < layers; ++layer) {
    const AttentionSelection& now = made_.emplace_back(select_known(layer));
    if (!now.own || now.window != 0 || !now.fronts.empty() || !now.extra.empty()) return std::nullopt;
    if (now.joined.empty()) continue;
    all.whole[static_cast<size_t>(layer)] = false;
    if (all.lists.empty()) all.lists = now.joined;
    const LayerShape& shape = pass_->cache->layers[layer].shape();
    if (now.joined != all.lists || std::ssize(now.joined) != shape.kv_heads || shape.window > 0) return std::nullopt;
    if (!std::ranges::all_of(now.joined, ends_with_own)) return std::nullopt;
  }
  for (std::vector<int32_t>& list : all.lists) list.resize(list.size() - static_cast<size_t>(fresh));
  return all;
}

AttentionSelection ChosenSequence::choose(int64_t layer, const LayerRows& rows) {
  if (known_) return std::cmp_less(layer, made_.size()) ? std::move(made_[layer]) : select_known(layer);
  LayerCache& cache = pass_->cache->layers[layer];
  const int64_t count = std::ssize(pass_->tokens);
  QkvRows from = rows.attention;
  from.q = host_queries(*model_, from, count, queries_);
  cache.append(from.keys, from.values, count, from.kv_stride, pass_->cache->length);
  AttentionSelection selection = select(layer, queries_of(*pass_, from, rows.hidden));
  const float factor = model_->query_factor();
  if (factor == 1) return selection;
  const int64_t numbers = count * cache.shape().q_heads * cache.shape().head_dim;
  for (ExtraRuns& extra : selection.extra) {
    if (extra.queries == nullptr) continue;
    std::vector<float>& scaled = turned_.emplace_back(extra.queries, extra.queries + numbers);
    for (float& number : scaled) number /= factor;
    extra.queries = scaled.data();
  }
  return selection;
}

}  // namespace kvarena::device
