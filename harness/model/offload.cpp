#include "harness/model/offload.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "harness/model/transformer_impl.h"

namespace kvarena {

void Transformer::offload_to(std::unique_ptr<Offload> device) { impl_->device = std::move(device); }

void Transformer::upload(KvCache& cache, int64_t tokens) {
  if (impl_->device) impl_->device->upload(cache, tokens);
}

std::span<const float> Transformer::Impl::forward(std::span<const SequencePass> batch) {
  if (device == nullptr) return run(batch);
  std::set<int64_t> exits;
  for (const SequencePass& pass : batch) exits.insert(last_layer(pass));
  if (exits.size() < 2) return device->forward(batch);

  // One exit after the other; logits go where a single pass would have left them.
  int64_t wanted = 0;
  for (const SequencePass& pass : batch) wanted += wanted_rows(pass);
  float* all = together.at_least(wanted * config.vocab_size);
  for (const int64_t exit : exits) {
    std::vector<SequencePass> alike;
    std::ranges::copy_if(batch, std::back_inserter(alike),
                         [&](const SequencePass& pass) { return last_layer(pass) == exit; });
    const float* from = device->forward(alike).data();
    float* to = all;
    for (const SequencePass& pass : batch) {
      const int64_t floats = wanted_rows(pass) * config.vocab_size;
      if (last_layer(pass) == exit) {
        std::copy_n(from, floats, to);
        from += floats;
      }
      to += floats;
    }
  }
  return {all, static_cast<size_t>(wanted * config.vocab_size)};
}

}  // namespace kvarena
