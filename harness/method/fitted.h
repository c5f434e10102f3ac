#pragma once
// Weights that a method learned or calibrated for one model (`kvarena fit`), or that its authors published.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena {

struct FittedTensor {
  std::vector<int64_t> shape;  // outermost first, row-major
  std::vector<float> values;
};

/// The content of one artifact.
struct FittedWeights {
  std::string place;                            // the file, for messages
  std::map<std::string, FittedTensor> tensors;  // by name: "layers.3.weight"
  /// An artifact's method, model, data, seed and what else a fitter notes; a folder's config.json, keys of nested
  /// objects behind a dot.
  std::map<std::string, std::string> metadata;

  /// The tensor called `name`, which must have `shape` (-1: any size). Throws UserError.
  [[nodiscard]] const FittedTensor& at(std::string_view name, const std::vector<int64_t>& shape) const;
  [[nodiscard]] bool has(const std::string& name) const { return tensors.contains(name); }
};

/// Which artifact a method wants. Without `path` it is the one that the project holds for the model.
struct FittedRequest {
  std::string method;   // as in the registry
  std::string variant;  // of the method's fit ("mlp"); empty when there is one only
  std::string path;     // explicit file or folder; empty = the project's own
  /// Endings of the names of tensors that an import takes. Where there are any, a path must name the model's artifact.
  std::vector<std::string> wanted;

  /// "kvzap-mlp"
  [[nodiscard]] std::string stem() const { return variant.empty() ? method : method + "-" + variant; }
};

}  // namespace kvarena
