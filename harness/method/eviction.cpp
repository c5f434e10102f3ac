#include "harness/method/eviction.h"

namespace kvarena {

void PlacingMethod::parameters(ParameterVisitor& p) {
  p("compress", compress_)
      .doc(
          "a method that compresses every context before it is stored; without it contexts come uncompressed, and a "
          "policy that chooses forms takes them from the config's \"contexts\"");
}

}  // namespace kvarena
