#include "harness/model/offload.h"

#include <algorithm>
#include <map>
#include <vector>

#include "harness/model/transformer_impl.h"

namespace kvarena {

void Transformer::offload_to(std::unique_ptr<Offload> device) { impl_->device = std::move(device); }

void Transformer::upload(KvCache& cache, int64_t tokens) {
  if (impl_->device) impl_->device->upload(cache, tokens);
}

std::unique_ptr<SearchedKeys> Transformer::searched_keys(int64_t kv_heads, int64_t head_dim,
                                                         const LedgerPtr& ledger) const {
  return impl_->device ? impl_->device->searched_keys(kv_heads, head_dim, ledger) : nullptr;
}

/// Numbers of the passes that a device computes together: those that leave behind one layer, and by itself each that
/// has positions.
std::vector<std::vector<size_t>> Transformer::Impl::together_on_device(std::span<const SequencePass> batch) const {
  std::vector<std::vector<size_t>> groups;
  std::map<int64_t, std::vector<size_t>> by_exit;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].positions.empty()) {
      by_exit[last_layer(batch[i])].push_back(i);
    } else {
      groups.push_back({i});
    }
  }
  for (auto& [exit, alike] : by_exit) groups.push_back(std::move(alike));
  return groups;
}

/// One group after the other; logits go where a single pass would have left them.
std::span<const float> Transformer::Impl::forward(std::span<const SequencePass> batch) {
  if (device == nullptr) return run(batch);
  const std::vector<std::vector<size_t>> groups = together_on_device(batch);
  const bool scattered = std::ranges::any_of(batch, [](const auto& pass) { return !pass.positions.empty(); });
  if (groups.size() < 2 && !scattered) return device->forward(batch);

  std::vector<int64_t> rows = {0};  // before each pass's
  for (const SequencePass& pass : batch) rows.push_back(rows.back() + wanted_rows(pass));
  float* all = together.at_least(rows.back() * config.vocab_size);
  for (const std::vector<size_t>& group : groups) {
    std::vector<SequencePass> alike;
    for (const size_t i : group) alike.push_back(batch[i]);
    const float* from =
        alike.front().positions.empty() ? device->forward(alike).data() : rows_on_device(alike.front()).data();
    for (const size_t i : group) {
      const int64_t floats = (rows[i + 1] - rows[i]) * config.vocab_size;
      std::copy_n(from, floats, all + rows[i] * config.vocab_size);
      from += floats;
    }
  }
  return {all, static_cast<size_t>(rows.back() * config.vocab_size)};
}

}  // namespace kvarena
