#pragma once
// Pruning inside the prefill: prompt tokens that the newest ones hardly attend to leave between two layers, and deeper
// layers neither compute nor cache them. A method of this kind gets a prefill of its own, whose logits and hidden
// states are not those of full KV.

#include <cstdint>
#include <span>
#include <vector>

namespace kvarena {

/// The attention of a layer's last queries.
struct PrunedLayer {
  int64_t layer = 0;
  int64_t layers = 0;
  int64_t prompt_tokens = 0;
  std::span<const int32_t> positions;  // of the tokens that the layer computed, ascending
  std::span<const float> attention;    // [positions], weighted sum over the voting queries, mean over query heads
};

class Pruner {
 public:
  virtual ~Pruner() = default;

  /// How much the last tokens of the prompt count, oldest first: their number is that of the voters, 1 to
  /// prompt_tokens. All above 0.
  [[nodiscard]] virtual std::vector<float> votes(int64_t prompt_tokens) const = 0;
  /// Whether tokens leave after this layer; otherwise its attention is not gathered.
  [[nodiscard]] virtual bool prunes(int64_t layer, int64_t layers) const = 0;
  /// Positions that go on to the next layer, ascending, the voters' among them.
  [[nodiscard]] virtual std::vector<int32_t> keep(const PrunedLayer& seen) const = 0;
};

}  // namespace kvarena
