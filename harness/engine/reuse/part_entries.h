#pragma once
// Entries of a prompt's parts as numbers.

#include "harness/engine/reuse/chunk_store.h"
#include "harness/method/reuser.h"

namespace kvarena {

/// Entries first .. first+count-1 of a dense cache; keys are turned on by `distance` positions.
[[nodiscard]] PartRows rows_of(const Transformer& model, const KvCache& cache, int64_t first, int64_t count,
                               int64_t distance);

/// Parts of a prompt, as the chunks that they were taken from and as the prompt's cache holds them. All of these must
/// outlive it.
class PartEntries final : public PartReader {
 public:
  /// chunks [parts].
  PartEntries(const Transformer& model, std::span<const PromptPart> parts, std::span<const ChunkCache> chunks,
              const KvCache& cache)
      : model_(&model), parts_(parts), chunks_(chunks), cache_(&cache) {}

  [[nodiscard]] PartRows alone(size_t part, int64_t position) const override;
  [[nodiscard]] PartRows in_prompt(size_t part, int64_t position) const override;

 private:
  const Transformer* model_;
  std::span<const PromptPart> parts_;
  std::span<const ChunkCache> chunks_;
  const KvCache* cache_;
};

/// Writes rows over the entries from `first` on.
void replace_rows(const PartRows& rows, int64_t first, KvCache& cache);

}  // namespace kvarena
