#pragma once
// Drops tokens at the layers where a reuser lets fewer go on.

#include <vector>

#include "harness/method/reuser.h"
#include "harness/model/transformer.h"

namespace kvarena {

/// Measures how far fresh entries are from those in the cache and asks the reuser which tokens stay. Tokens of the
/// question always stay.
class Narrowing final : public RowFilter {
 public:
  /// `reuser` must outlive it.
  Narrowing(const Reuser& reuser, int64_t question) : reuser_(&reuser), question_(question) {}

  /// Whether the reuser narrows at any of the layers.
  [[nodiscard]] static bool wanted(const Reuser& reuser, int64_t layers);
  [[nodiscard]] bool judges(int64_t layer) const override { return reuser_->narrows(layer); }
  void see(int64_t layer, std::span<const int32_t> positions, const float* keys, const float* values, int64_t stride,
           const LayerCache& cache) override;
  [[nodiscard]] std::vector<int32_t> keep(int64_t layer, std::span<const int32_t> positions) override;

 private:
  /// Entries of the layer as they were before its first fresh one.
  struct Stored {
    std::vector<std::vector<float>> keys;    // [kv_heads][entries, head_dim]
    std::vector<std::vector<float>> values;  // likewise
  };

  const Reuser* reuser_;
  int64_t question_;
  Stored stored_;
  std::vector<float> key_distances_;    // of the context tokens seen in this layer
  std::vector<float> value_distances_;  // likewise
};

}  // namespace kvarena
