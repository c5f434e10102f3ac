#pragma once
// Keys of JSON objects that are written twice, of which readers keep one silently.

#include <string>
#include <string_view>

namespace kvarena {

/// Throws UserError where an object has a key twice. Text that is no JSON passes: parsers say what is wrong with it.
void require_unique_keys(std::string_view text, const std::string& place);

}  // namespace kvarena
