#pragma once
// How far a cache is from that of a full prefill.

#include <vector>

#include "harness/cache/layer_cache.h"

namespace kvarena {

/// For each layer the mean over tokens 0 .. tokens-1 of the cosine distance between both caches' keys, all heads side
/// by side, and of that between their values, averaged. Both caches hold entries in order; empty where the other lacks
/// those of some tokens. Wen et al. 2026 (SpecCache), Figure 2.
[[nodiscard]] std::vector<double> layer_deviations(const KvCache& full, const KvCache& other, int64_t tokens);

}  // namespace kvarena
