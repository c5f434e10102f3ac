#pragma once
// A published checkpoint as weights of a method for a model.

#include <filesystem>
#include <string>

#include "harness/model/transformer.h"

namespace kvarena::testing {

/// The file of a new artifact, which is there until the process ends.
std::string imported(const Transformer& model, const std::string& method, const std::string& checkpoint);

}  // namespace kvarena::testing
