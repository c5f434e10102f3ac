#pragma once
// The share of a cache that a compressed copy lacks: what follows it over a slow link, until the whole is there.
// Yao et al. 2026, arXiv:2605.17613, Appendix B.2 (T_l^rem, the share 1 - c).

#include <cstddef>
#include <span>
#include <vector>

#include "harness/cache/layer_cache.h"

namespace kvarena {

/// Returns what completes `left`, which a store gave back of a prompt (stored_cache.h), to `full`, its whole cache, bit
/// for bit. Entries that are not in `left` are sent as they are. Of the others each number is sent as its distance from
/// the one that `left` says, counted in numbers of the cache's type, by Exp-Golomb codes whose order every 16 entries
/// choose; 16 entries that are exact, as those of a dropping method, cost one byte each side. Deterministic.
[[nodiscard]] std::vector<std::byte> remaining_bytes(const KvCache& full, const KvCache& left);

/// The whole cache, from the compressed one, which may have taken entries of later tokens since. Throws UserError on
/// bytes that are cut or of another cache.
[[nodiscard]] KvCache completed_cache(const KvCache& left, std::span<const std::byte> remaining);

}  // namespace kvarena
