#pragma once
// A drafting head's checkpoint as its authors or others publish it (SafeAILab/EAGLE, RedHatAI's speculators): names
// differ in what stands in front of them, settings may lie in a nested object.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/method/fitted.h"
#include "harness/method/model_facts.h"
#include "kernels/matmul/matmul.h"

namespace kvarena {

/// Borrows the weights.
class DrafterFile {
 public:
  explicit DrafterFile(const FittedWeights& weights) : weights_(&weights) {}

  /// The one tensor whose name ends so, null when there is none.
  [[nodiscard]] const FittedTensor* find(std::string_view ending) const;
  /// The one tensor whose name ends so, which must have `shape` (-1: any size). Throws UserError.
  [[nodiscard]] const FittedTensor& tensor(std::string_view ending, const std::vector<int64_t>& shape) const;
  /// The number of a key in config.json, at its top or among the layer's own settings. Throws UserError when it is no
  /// number.
  [[nodiscard]] std::optional<double> number(const std::string& key) const;
  /// A number of at least 1, which must be there.
  [[nodiscard]] int64_t count(const std::string& key) const;
  /// Whether a key is there and true.
  [[nodiscard]] bool flag(const std::string& key) const;
  /// Throws UserError when config.json has another hidden_size or vocab_size than the model: the head is another's.
  void require_sizes_of(const ModelFacts& model) const;
  /// "FILE: config.json: KEY", for messages.
  [[nodiscard]] std::string place(const std::string& key) const;

 private:
  const FittedWeights* weights_;
};

/// Rows [n, k] at distance `stride`, in 16 bits when that loses nothing.
[[nodiscard]] kernels::PackedMatrix pack_exactly(const float* rows, int64_t n, int64_t k, int64_t stride);

}  // namespace kvarena
