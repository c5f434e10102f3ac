#pragma once
// Chat templates by name, for checkpoints that bring none.

#include <span>
#include <string>
#include <string_view>

namespace kvarena {

struct NamedTemplate {
  std::string_view name;
  std::string jinja;
};

[[nodiscard]] std::span<const NamedTemplate> named_templates();

}  // namespace kvarena
