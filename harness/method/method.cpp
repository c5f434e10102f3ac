#include "harness/method/method.h"

#include <algorithm>

namespace kvarena {

const char* to_string(Family family) {
  switch (family) {
    case Family::reference: return "reference";
    case Family::compression: return "compression";
    case Family::retrieval: return "retrieval";
    case Family::reuse: return "reuse";
    case Family::eviction: return "eviction";
    case Family::verification: return "verification";
  }
  return "";
}

Needs combine(const Needs& a, const Needs& b) {
  return {.prompt_attention = a.prompt_attention || b.prompt_attention,
          .window = std::max(a.window, b.window),
          .step_attention = a.step_attention || b.step_attention,
          .hidden = a.hidden || b.hidden,
          .output_projection = a.output_projection || b.output_projection};
}

}  // namespace kvarena
