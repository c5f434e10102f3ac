#include "harness/device/host_sequence.h"

#include "harness/cache/tree_view.h"
#include "harness/model/attend_sequence.h"

namespace kvarena::device {

const float* host_queries(const DeviceModel& model, const AttentionRows& brought, int64_t count,
                          std::vector<float>& memory) {
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
  AttentionRows from = rows.attention;
  from.q = host_queries(*model_, from, count, queries_);
  attend_sequence(layer, *pass_, from, rows.hidden,
                  {.attended = attended, .running = running_.data(), .lse = lse_.data()});
}

}  // namespace kvarena::device
