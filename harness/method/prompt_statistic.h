#pragma once
// Numbers about every prompt entry that are summed up query by query while the prompt's attention is computed, so that
// nobody has to compute it again, let alone keep it.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"

namespace kvarena {

/// Attention of some of the prompt's queries in one kv head: list positions of the rows are positions of the prompt.
struct QueryRows {
  const kernels::ProbabilityRows& rows;
  int64_t layer = 0;
  int64_t position = 0;  // of the first query
};

class PromptStatistic {
 public:
  virtual ~PromptStatistic() = default;

  /// Statistics of equal ids gather the same numbers: one of them is asked for all.
  [[nodiscard]] virtual std::string id() const = 0;
  /// Numbers of an entry.
  [[nodiscard]] virtual int64_t width() const = 0;
  /// Adds the share of some queries to sums [width, entries] of their kv head, which start at 0. Queries come in
  /// ascending order; heads may come from different threads. For results that do not depend on how the prompt is cut,
  /// add query by query. Must not throw.
  virtual void add(const QueryRows& queries, std::span<float> sums) const = 0;
  /// The sum of add() as an operation of a device, which has the probabilities of a prompt of `tokens` tokens itself;
  /// none where no such operation says it. Heads' sums are those that add() is given.
  [[nodiscard]] virtual std::optional<kernels::SumOfQueries> device_ops(int64_t /*layer*/, int64_t /*tokens*/) const {
    return std::nullopt;
  }
};

/// The sums of a statistic in one layer.
struct GatheredStatistic {
  std::string id;
  int64_t width = 0;
  std::vector<float> sums;  // [kv_heads, width, n]
};

using PromptStatistics = std::vector<std::shared_ptr<const PromptStatistic>>;

}  // namespace kvarena
