#pragma once
// A prompt read for sessions of one method alone.

#include "harness/engine/session/prefill.h"

namespace kvarena {

/// The prompt as compress_in_place() leaves it, for sessions of a method that outlives_full_cache(). Where the method
/// compresses by layer and observes no more than queries, each layer is compressed before the next one is computed:
/// beside what is left of the layers before, one full layer is held, on a device too. Bits are those of a prefill()
/// that is compressed afterwards. Throws as prefill() does, and what the method throws.
[[nodiscard]] Prefill read_for(Transformer& model, std::span<const int32_t> tokens, const Method& method,
                               int64_t sessions, std::shared_ptr<const ModelFacts> facts, PromptLayout layout = {});

}  // namespace kvarena
