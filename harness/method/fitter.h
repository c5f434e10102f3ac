#pragma once
// Fitting: how a method learns or calibrates weights for one model. The driver (harness/engine/fit) reads texts, calls
// collect() for every layer of every text, then solve() for every layer, and writes the artifact; what is done so far
// survives a kill. A fitter must be a function of its arguments alone, so that a resumed fit equals an uninterrupted
// one.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/core/random.h"
#include "harness/method/fitted.h"
#include "harness/method/method.h"

namespace kvarena {

class LayerView;

using FittedTensors = std::map<std::string, FittedTensor>;

class Fitter {
 public:
  virtual ~Fitter() = default;

  /// The request that finds the weights, without a path: two methods may share them.
  [[nodiscard]] virtual FittedRequest artifact() const = 0;
  /// Observations that collect() reads.
  [[nodiscard]] virtual Needs needs() const = 0;
  /// Tokens of each text that are read, behind the chat template's prefix.
  [[nodiscard]] virtual int64_t sample_tokens() const { return 512; }
  /// The record of one layer of one text; kept on disk until all texts were read.
  [[nodiscard]] virtual FittedTensors collect(const LayerView& layer, const RandomStream& draws) const = 0;
  /// A layer's weights from the records of all texts, in order.
  [[nodiscard]] virtual FittedTensors solve(const std::vector<FittedTensors>& records,
                                            const RandomStream& draws) const = 0;
  /// Whether the weights are of the model, not of its layers. Then all layers of a text draw the same, join() makes one
  /// record of what they contributed, and solve() is asked once, as for layer 0.
  [[nodiscard]] virtual bool joint() const { return false; }
  [[nodiscard]] virtual FittedTensors join(std::vector<FittedTensors> layers) const {
    return std::move(layers.front());
  }
  /// The artifact of all layers' weights: names behind "layers.N." unless the published format is another.
  [[nodiscard]] virtual FittedTensors assemble(const std::vector<FittedTensors>& layers) const {
    FittedTensors all;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      for (const auto& [name, tensor] : layers[layer]) all["layers." + std::to_string(layer) + "." + name] = tensor;
    }
    return all;
  }
  /// Whether the artifact is stored in bf16.
  [[nodiscard]] virtual bool half() const { return false; }
};

}  // namespace kvarena
