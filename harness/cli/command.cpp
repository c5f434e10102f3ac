#include "harness/cli/command.h"

namespace kvarena::cli {

OptionSet Command::options() const {
  OptionSet set;
  if (declare) declare(set);
  return set;
}

}  // namespace kvarena::cli
