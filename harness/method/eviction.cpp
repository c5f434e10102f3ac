#include "harness/method/eviction.h"

#include <nlohmann/json.hpp>

#include "harness/core/error.h"

namespace kvarena {

void PlacingMethod::parameters(ParameterVisitor& p) {
  p("compress", compress_)
      .doc(
          "a method that compresses every context before it is stored; without it contexts come uncompressed, and a "
          "policy that chooses forms takes them from the config's \"contexts\"");
}

void PlacingMethod::check(const std::string& place, std::vector<std::string>& problems) const {
  if (compress_.json.empty()) return;
  const auto nested = check_method(nlohmann::json::parse(compress_.json), place + ".compress");
  problems.insert(problems.end(), nested.begin(), nested.end());
}

std::unique_ptr<Method> PlacingMethod::compressor() const {
  return compress_.json.empty() ? nullptr : make_method(nlohmann::json::parse(compress_.json), "compress");
}

}  // namespace kvarena
