#pragma once
// Perplexity from token losses.

#include <cstdint>
#include <span>

namespace kvarena::metrics {

struct Perplexity {
  double total_nll = 0;         ///< nats
  double token_perplexity = 1;  ///< exp(total / tokens): what KV-cache papers print
  double word_perplexity = 1;   ///< exp(total / words): what PG-19 defines
};

/// `token_nll` [tokens] in nats. A count of zero gives NaN for the perplexity that needs it.
[[nodiscard]] Perplexity perplexity(std::span<const double> token_nll, int64_t words);

}  // namespace kvarena::metrics
