#include "harness/engine/draft/draft_source.h"

namespace kvarena {

Draft DraftSampler::draw(std::span<const float> logits, int64_t position) const {
  const auto index = static_cast<uint64_t>(position);
  if (rejects()) return sample_draft(logits, settings_, index);
  return {.token = sample(logits, mode_ == DraftSampling::coupled ? settings_ : SamplingSettings{}, index)};
}

}  // namespace kvarena
