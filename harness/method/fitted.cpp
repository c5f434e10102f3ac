#include "harness/method/fitted.h"

#include <fmt/format.h>

#include "harness/core/error.h"

namespace kvarena {

const FittedTensor& FittedWeights::at(std::string_view name, const std::vector<int64_t>& shape) const {
  auto found = tensors.find(std::string(name));
  if (found == tensors.end()) found = tensors.find("");  // a file's only one, which has no name there
  if (found == tensors.end()) {
    std::vector<std::string> names;
    for (const auto& [known, tensor] : tensors) names.push_back(known);
    fail({.place = place,
          .found = fmt::format("no tensor \"{}\"", name),
          .expected = "it among the fitted weights",
          .nearest = nearest_name(name, names)});
  }
  bool fits = found->second.shape.size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) fits = shape[i] < 0 || found->second.shape[i] == shape[i];
  if (!fits) {
    fail({.place = fmt::format("{}: tensor {}", place, name),
          .found = fmt::format("shape [{}]", fmt::join(found->second.shape, ", ")),
          .expected = fmt::format("[{}], as the model has it (-1: any)", fmt::join(shape, ", ")),
          .action = "These weights belong to another model."});
  }
  return found->second;
}

}  // namespace kvarena
