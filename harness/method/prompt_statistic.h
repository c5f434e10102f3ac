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
#include "kernels/attention_sums/attention_sums.h"

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
  /// The statistic of a prompt of `tokens` tokens as a sum that host and device add up alike; none where it is no such
  /// sum, and add() is overridden.
  [[nodiscard]] virtual std::optional<kernels::SumOfQueries> sum(int64_t /*layer*/, int64_t /*tokens*/) const {
    return std::nullopt;
  }
  /// Adds the share of some queries to sums [width, entries] of their kv head, which start at 0; by default as sum()
  /// says. Queries come in ascending order; heads may come from different threads. For results that do not depend on
  /// how the prompt is cut, add query by query. Must not throw.
  virtual void add(const QueryRows& queries, std::span<float> sums) const {
    const int64_t entries = std::ssize(sums) / width();
    kernels::add_sum(sum(queries.layer, entries).value(), queries.rows, queries.position, sums.data(), entries);
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
