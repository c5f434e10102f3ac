#pragma once
// Comparison with the logits of a fixture.

#include <span>
#include <string>

#include "tests/support/golden_model.h"

namespace kvarena::testing {

inline constexpr TransformerOptions kExact{.weights = kernels::DType::f32, .cache = kernels::DType::f32};

/// Logits agree when none is further away than this share of the row's largest.
inline constexpr double kTolerance = 1e-4;

/// Feeds a fixture's tokens to a model and counts the rows that it compared.
class GoldenRows {
 public:
  GoldenRows(const nlohmann::json& fixture, Transformer& model) : fixture_(&fixture), model_(&model) {}

  /// One pass.
  void feed(KvCache& cache, std::span<const int32_t> tokens);

  [[nodiscard]] std::vector<int32_t> tokens(const char* key) const {
    return (*fixture_)[key].get<std::vector<int32_t>>();
  }
  [[nodiscard]] bool all_compared() const { return compared_ == (*fixture_)["rows"].size(); }

 private:
  void compare(std::span<const float> ours, const std::vector<double>& theirs, const std::string& position);

  const nlohmann::json* fixture_;
  Transformer* model_;
  size_t compared_ = 0;
};

}  // namespace kvarena::testing
