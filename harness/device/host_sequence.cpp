#include "harness/device/host_sequence.h"

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

AttentionSelection ChosenSequence::choose(int64_t layer, const LayerRows& rows) {
  LayerCache& cache = pass_->cache->layers[layer];
  const int64_t count = std::ssize(pass_->tokens);
  QkvRows from = rows.attention;
  from.q = host_queries(*model_, from, count, queries_);
  cache.append(from.keys, from.values, count, from.kv_stride, pass_->cache->length);
  const LayerQueries queries = queries_of(*pass_, from, rows.hidden);
  pass_->hooks->before_attention(layer, cache, queries);
  AttentionSelection selection = selection_of(cache, queries);
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
