#include "harness/model/jinja/program.h"

#include "harness/model/jinja/builtins.h"
#include "harness/model/jinja/parser.h"

namespace kvarena::jinja {

Program::Program(std::string_view text) : statements_(std::make_shared<const Block>(parse(text))) {}

std::string Program::render(const Names& names) const {
  Scope functions;
  bind_functions(functions);
  Scope program(&functions);
  for (const auto& [name, value] : names) program.set(name, value);
  std::string out;
  run_block(*statements_, program, out);
  return out;
}

}  // namespace kvarena::jinja
