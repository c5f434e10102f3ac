#include "harness/serve/api_key.h"

#include <string_view>

#include "harness/core/files.h"

namespace kvarena::serve {

ApiKey::ApiKey(const std::string& key) : hash_(key.empty() ? "" : sha256(std::string_view(key))) {}

bool ApiKey::accepts(const std::string& authorization) const {
  if (!required()) return true;
  constexpr std::string_view kScheme = "Bearer ";
  if (!authorization.starts_with(kScheme)) return false;
  const std::string sent = sha256(std::string_view(authorization).substr(kScheme.size()));
  unsigned differs = 0;
  for (size_t i = 0; i < hash_.size(); ++i) differs |= static_cast<unsigned>(sent[i] ^ hash_[i]);
  return differs == 0;
}

}  // namespace kvarena::serve
