#include "harness/model/offload.h"

#include <algorithm>

#include "harness/model/transformer_impl.h"

namespace kvarena {

void Transformer::offload_to(std::unique_ptr<Offload> device) { impl_->device = std::move(device); }

std::span<const float> Transformer::Impl::forward(std::span<const SequencePass> batch) {
  if (device == nullptr) return run(batch);
  std::vector<SequencePass> near, far;
  for (const SequencePass& pass : batch) (device->takes(pass) ? far : near).push_back(pass);
  if (far.empty()) return run(batch);
  std::span<const float> of_far = device->forward(far);
  if (near.empty()) return of_far;
  std::span<const float> of_near = run(near);

  float* to = together.at_least(static_cast<int64_t>(of_far.size() + of_near.size()));
  const std::span<const float> all(to, of_far.size() + of_near.size());
  auto next_far = far.begin();
  for (const SequencePass& pass : batch) {
    const bool is_far = next_far != far.end() && next_far->cache == pass.cache;
    if (is_far) ++next_far;
    std::span<const float>& from = is_far ? of_far : of_near;
    const auto count = static_cast<size_t>(wanted_rows(pass) * config.vocab_size);
    to = std::ranges::copy(from.first(count), to).out;
    from = from.subspan(count);
  }
  return all;
}

}  // namespace kvarena
