#include "harness/method/prefill_pattern.h"

namespace kvarena {

void PrefillMethod::select(LayerContext& layer, const LayerQueries& queries) const {
  LayerCache& cache = layer.cache;
  const LayerShape& shape = cache.shape();
  const int64_t n = queries.q_len;
  if (shape.window > 0 || queries.position > 0 || n != cache.tail().entries(0)) return;
  const PromptRanges ranges = part_->attended(layer, queries);
  if (ranges.empty()) return;
  int64_t seen = 0;
  for (const RowRanges& rows : ranges) seen += pairs_seen(rows, shape, /*before=*/0);
  layer.activity.entries_skipped += shape.q_heads * (n * (n + 1) / 2) - seen;
  cache.view = std::make_unique<EntryRangesView>(cache.tail(), ranges, cache.ledger());
}

}  // namespace kvarena
