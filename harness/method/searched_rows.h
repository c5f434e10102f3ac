#pragma once
// SearchedKeys in main memory.

#include "harness/cache/searched_keys.h"

namespace kvarena {

[[nodiscard]] std::unique_ptr<SearchedKeys> searched_rows(int64_t kv_heads, int64_t head_dim, const LedgerPtr& ledger);

}  // namespace kvarena
