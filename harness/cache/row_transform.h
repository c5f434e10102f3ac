#pragma once
// Invertible linear maps that a codec applies to rows of keys or values before it quantises them: rotations that spread
// outliers over channels, factors that even channels out. Attention never undoes the map on keys: it maps the queries
// instead; on values it undoes it once, on the output.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "harness/cache/memory.h"

namespace kvarena {

/// Immutable; shared by clones of a segment, and by all layers where the map is the model's.
class RowTransform : public std::enable_shared_from_this<RowTransform> {
 public:
  virtual ~RowTransform() = default;

  /// rows [count, head_dim] of one kv head, in place: x -> T x.
  virtual void apply(int64_t kv_head, float* rows, int64_t count) const = 0;
  /// y -> T^-1 y.
  virtual void undo(int64_t kv_head, float* rows, int64_t count) const = 0;
  /// Queries q -> T^-t q, so that the dot product with T x is that of q with x.
  virtual void apply_to_queries(int64_t kv_head, float* rows, int64_t count) const = 0;
  /// Bytes a request holds because of the map; 0 where it follows from a seed alone.
  [[nodiscard]] virtual int64_t bytes() const { return 0; }
  /// Copies the map, its bytes counted in `ledger`.
  [[nodiscard]] virtual std::shared_ptr<const RowTransform> clone(const LedgerPtr& /*ledger*/) const {
    return shared_from_this();
  }
};

using RowTransformPtr = std::shared_ptr<const RowTransform>;

/// The normalised Walsh-Hadamard transform, after random signs when there is a seed (Ailon and Chazelle's randomised
/// Hadamard). Each run of `run` channels is transformed by itself, a power of two that divides head_dim; 0: the
/// largest.
[[nodiscard]] RowTransformPtr hadamard_transform(int64_t head_dim, std::optional<uint64_t> sign_seed, int64_t run = 0);

/// A rotation drawn uniformly: the Q of a Gaussian matrix's QR decomposition, columns signed by R's diagonal.
[[nodiscard]] RowTransformPtr random_rotation(int64_t head_dim, uint64_t seed);

/// Divides channel c of kv head h by factors[h * head_dim + c], all above 0. The factors belong to the request.
[[nodiscard]] RowTransformPtr channel_scaling(int64_t head_dim, std::span<const float> factors,
                                              const LedgerPtr& ledger);

}  // namespace kvarena
