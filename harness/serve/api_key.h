#pragma once
// The key that clients must send.

#include <string>

namespace kvarena::serve {

/// Keeps a key's hash alone.
class ApiKey {
 public:
  /// Without a key everyone may ask.
  explicit ApiKey(const std::string& key);
  [[nodiscard]] bool required() const { return !hash_.empty(); }
  /// Whether an Authorization header says "Bearer KEY", in time that does not depend on where it differs.
  [[nodiscard]] bool accepts(const std::string& authorization) const;

 private:
  std::string hash_;
};

}  // namespace kvarena::serve
