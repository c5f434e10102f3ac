#pragma once
// The layers of a model that a method acts on.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cache/layer_cache.h"
#include "harness/core/parameters.h"

namespace kvarena {

/// A choice among the layers of a model: all, those that see everything, those with a sliding window, or some by
/// number.
class LayerChoice {
 public:
  /// All layers.
  LayerChoice() = default;
  /// Layers without a window.
  [[nodiscard]] static LayerChoice without_windows();

  void parameters(ParameterVisitor& p);
  /// Problems that no model is needed to see.
  void check(const std::string& place, std::vector<std::string>& problems) const;
  [[nodiscard]] bool holds(int64_t layer, const LayerShape& shape) const;
  /// The chosen layers of a cache, ascending. Throws UserError where there is none, or a number too high.
  [[nodiscard]] std::vector<int64_t> of(const KvCache& cache) const;
  /// Whether layers with a window may be among them.
  [[nodiscard]] bool may_slide() const;
  /// Whether these are the layers with a window alone.
  [[nodiscard]] bool only_sliding() const;

 private:
  WordOrNumbers chosen_ = "all";
};

}  // namespace kvarena
