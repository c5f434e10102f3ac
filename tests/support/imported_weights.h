#pragma once
// A published checkpoint as weights of a method for a model.

#include <filesystem>
#include <string>

#include "harness/engine/fit.h"
#include "harness/engine/model_facts.h"
#include "harness/method/registry.h"
#include "tests/support/temporary_folder.h"

namespace kvarena::testing {

/// The file of a new artifact, which is there until the process ends.
inline std::string imported(const Transformer& model, const std::string& method, const std::string& checkpoint) {
  static const TemporaryFolder folder;
  static int files = 0;
  const std::filesystem::path file = folder / std::to_string(files++) / (method + ".safetensors");
  (void)import_fitted(*model_facts(model), *find_method(method)->create()->fitter(), checkpoint, file);
  return file.string();
}

}  // namespace kvarena::testing
