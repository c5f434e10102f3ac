#include "harness/engine/reuse/cartridge.h"

#include <fmt/format.h>

#include "harness/core/files.h"
#include "harness/engine/reuse/part_entries.h"

namespace kvarena {
namespace {

/// Appends rows to an empty cache.
void append_rows(const PartRows& rows, int64_t position, KvCache& cache) {
  for (size_t l = 0; l < cache.layers.size(); ++l) {
    const LayerShape& shape = cache.layers[l].shape();
    const int64_t width = shape.kv_heads * shape.head_dim;
    const auto count = std::ssize(rows.keys[l]) / width;
    cache.layers[l].append(rows.keys[l].data(), rows.values[l].data(), count, width, position);
    cache.length = position + count;
  }
}

}  // namespace

std::string cartridge_key(const Transformer& model, const Reuser& reuser) {
  const FittedRequest request = reuser.artifact();
  return sha256(fmt::format("{} {} {}", chunk_key(model, {}), request.stem(), request.path));
}

ChunkCache read_cartridge(const Transformer& model, const Reuser& reuser, const ModelFacts& facts) {
  const auto weights = facts.fitted(reuser.artifact());
  KvCache cache = model.make_cache();
  std::vector<LayerShape> shapes;
  for (const LayerCache& layer : cache.layers) shapes.push_back(layer.shape());
  append_rows(reuser.entries_in(*weights, shapes), 0, cache);
  cache.prompt_length = cache.length;
  return std::make_shared<const KvCache>(std::move(cache));
}

void append_cartridge(const Transformer& model, const KvCache& entries, int64_t end, KvCache& cache) {
  const int64_t begin = end - entries.length;
  append_rows(rows_of(model, entries, 0, entries.length, begin), begin, cache);
}

}  // namespace kvarena
