#include "harness/engine/reuse/part_entries.h"

#include "harness/cache/codec_side_data.h"

namespace kvarena {

PartRows rows_of(const Transformer& model, const KvCache& cache, int64_t first, int64_t count, int64_t distance) {
  PartRows rows;
  for (size_t l = 0; l < cache.layers.size(); ++l) {
    const LayerShape& shape = cache.layers[l].shape();
    const int64_t width = shape.kv_heads * shape.head_dim;
    std::vector<float>& keys = rows.keys.emplace_back(static_cast<size_t>(count * width));
    std::vector<float>& values = rows.values.emplace_back(keys.size());
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const int64_t at = head * shape.head_dim;
      cache.layers[l].tail().read_some(head, first, count, keys.data() + at, values.data() + at, width);
    }
    const RotaryKeys rotation(model.rope(static_cast<int64_t>(l)).inverse);
    const std::vector<int32_t> distances(static_cast<size_t>(count * shape.kv_heads), static_cast<int32_t>(distance));
    if (distance != 0) rotation.redo(keys.data(), distances);
  }
  return rows;
}

PartRows PartEntries::alone(size_t part, int64_t position) const {
  return rows_of(*model_, *chunks_[part], 0, chunks_[part]->length, position);
}

PartRows PartEntries::in_prompt(size_t part, int64_t position) const {
  const PromptPart& own = parts_[part];
  return rows_of(*model_, *cache_, own.begin, own.end - own.begin, position - own.begin);
}

void replace_rows(const PartRows& rows, int64_t first, KvCache& cache) {
  for (size_t l = 0; l < cache.layers.size(); ++l) {
    const LayerShape& shape = cache.layers[l].shape();
    const int64_t width = shape.kv_heads * shape.head_dim;
    cache.layers[l].tail().replace(first, rows.keys[l].data(), rows.values[l].data(), std::ssize(rows.keys[l]) / width,
                                   width);
  }
}

}  // namespace kvarena
