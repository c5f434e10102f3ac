#include "tests/support/imported_weights.h"

#include "harness/engine/fit.h"
#include "harness/engine/model_facts.h"
#include "harness/method/registry.h"
#include "tests/support/temporary_folder.h"

namespace kvarena::testing {

std::string imported(const Transformer& model, const std::string& method, const std::string& checkpoint) {
  static const TemporaryFolder folder;
  static int files = 0;
  const std::filesystem::path file = folder / std::to_string(files++) / (method + ".safetensors");
  (void)import_fitted(*model_facts(model), *find_method(method)->create()->fitter(), checkpoint, file);
  return file.string();
}

}  // namespace kvarena::testing
