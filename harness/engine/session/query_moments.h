#pragma once
// Mean and covariance of a prompt's queries as they are before rotation.

#include <vector>

#include "harness/method/method.h"
#include "harness/method/model_facts.h"

namespace kvarena {

/// Takes the rotation off queries. The layers of a pass have the same positions and share a table.
class BackRotation {
 public:
  explicit BackRotation(Rotation rotation) : rotation_(std::move(rotation)) {}

  /// Returns queries first .. q_len-1 before their rotation, [rows, q_heads, head_dim].
  [[nodiscard]] std::vector<float> unrotated(const LayerShape& shape, const LayerQueries& queries, int64_t first);

 private:
  void tabulate(int64_t position, int64_t count);

  Rotation rotation_;
  int64_t position_ = -1;  // of the table's first row
  int64_t count_ = 0;
  std::vector<float> cos_, sin_;  // [count, head_dim / 2], of the opposite angles
};

/// Counts in the queries from position moments.left_out on. Until finish_moments() the members hold plain sums, in
/// float64 because they must not depend on how the prompt is cut.
void add_moments(QueryMoments& moments, const LayerShape& shape, BackRotation& rotation, const LayerQueries& queries);

/// Makes mean and covariance of the sums.
void finish_moments(QueryMoments& moments);

}  // namespace kvarena
