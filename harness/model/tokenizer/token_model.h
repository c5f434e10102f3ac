#pragma once
// Interface of models that turn one piece of text into ids.

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvarena {

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  /// Appends the ids of `piece`, valid UTF-8 that is not empty (for byte-level models any bytes). Thread-safe.
  virtual void encode(std::string_view piece, std::vector<int32_t>& out) const = 0;
};

}  // namespace kvarena
