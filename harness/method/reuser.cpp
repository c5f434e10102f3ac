#include "harness/method/reuser.h"

#include <algorithm>

namespace kvarena {

std::vector<PromptPart> cut_parts(int64_t prefix, int64_t question, int64_t chunk) {
  std::vector<PromptPart> parts;
  const int64_t shared = std::min(prefix, question);
  if (shared > 0) parts.push_back({.begin = 0, .end = shared});
  for (int64_t begin = shared; begin < question; begin += chunk) {
    parts.push_back({.begin = begin, .end = std::min(question, begin + chunk)});
  }
  return parts;
}

void ReuseMethod::parameters(ParameterVisitor& p) {
  part_->parameters(p);
  if (part_->source() == ReuseSource::nothing || part_->source() == ReuseSource::artifact) return;
  p("chunk", part_->chunk_).min(1).doc("prompt tokens whose entries were computed together");
}

}  // namespace kvarena
