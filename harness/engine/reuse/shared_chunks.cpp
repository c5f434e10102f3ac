#include "harness/engine/reuse/shared_chunks.h"

#include <algorithm>

#include "harness/cache/moved_segment.h"
#include "kernels/cells/cells.h"

namespace kvarena {
namespace {

/// Entries of a part in front of the cells that are shared.
int64_t own_entries(const PromptPart& part, std::span<const int32_t> computed) {
  const auto behind = std::ranges::lower_bound(computed, part.end);
  const int64_t fresh = behind == computed.begin() ? 0 : *std::prev(behind) + 1 - part.begin;
  return kernels::cells_for(std::max<int64_t>(0, fresh)) * kernels::kCell;
}

}  // namespace

void share_chunks(const Transformer& model, std::span<const PromptPart> parts, std::span<const ChunkCache> chunks,
                  std::span<const int32_t> computed, KvCache& cache) {
  for (size_t l = 0; l < cache.layers.size(); ++l) {
    LayerCache& layer = cache.layers[l];
    if (layer.shape().window > 0) continue;
    const RotaryKeys rotation(model.rope(static_cast<int64_t>(l)).inverse);
    int64_t done = 0;  // entries of the tail that lie in segments before it
    for (size_t i = 0; i < parts.size(); ++i) {
      const PromptPart& part = parts[i];
      const int64_t own = own_entries(part, computed);
      if (part.begin + own >= part.end) continue;
      if (const int64_t copied = part.begin + own - done; copied > 0) {
        auto before = std::make_unique<EntrySegment>(layer.shape(), layer.ledger());
        before->append_entries(layer.tail(), done, copied);
        layer.insert_before_tail(std::move(before));
      }
      layer.insert_before_tail(
          std::make_unique<MovedSegment>(chunks[i]->layers[l].tail(), own, part.begin, rotation, layer.ledger()));
      done = part.end;
    }
    if (done > 0) layer.tail().drop_front(done);
  }
}

}  // namespace kvarena
