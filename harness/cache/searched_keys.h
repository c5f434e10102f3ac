#pragma once
// Keys of a small network that reads a model's tokens, and the search for the entries that a query wants.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "harness/cache/memory.h"

namespace kvarena {

/// Search of a query among the first entries.
struct KeySearch {
  std::span<const float> q;  // [q_heads, head_dim], q_heads a multiple of the keys' heads
  float scale = 1;           // of inner products
  int64_t lists = 1;         // groups of neighbouring query heads, as many in each
  int64_t among = 0;         // entries that compete, from the first on; all have their share of the softmax
  int64_t count = 0;         // entries of a list, at most `among`
};

/// A key in bf16 of every token of a request so far, for each of some heads, where the model's passes run. Their bytes
/// are counted in the request's ledger.
class SearchedKeys {
 public:
  virtual ~SearchedKeys() = default;
  /// Appends rows [tokens, kv_heads, head_dim].
  virtual void append(std::span<const float> rows) = 0;
  /// A list for each group: the entries with the largest maximum over its heads' attention, ascending; of equals the
  /// lower index. None at all where a probability is not a number.
  [[nodiscard]] virtual std::vector<std::vector<int32_t>> search(const KeySearch& what) const = 0;
  /// Tokens.
  [[nodiscard]] virtual int64_t count() const = 0;
  [[nodiscard]] virtual int64_t bytes() const = 0;
  [[nodiscard]] virtual std::unique_ptr<SearchedKeys> clone(const LedgerPtr& ledger) const = 0;
};

}  // namespace kvarena
