#include "harness/model/tokenizer/tokenizer.h"
#include "harness/model/tokenizer/utf8.h"

namespace kvarena {

std::string Detokenizer::push(int32_t id) {
  if (options_.skip_special && tokenizer_.is_special(id)) return {};
  pending_ += tokenizer_.token_bytes(id, first_);
  first_ = false;
  std::string out;
  size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Step step = step_utf8(pending_, at);
    if (step.kind == Utf8Step::Kind::incomplete) break;
    if (step.kind == Utf8Step::Kind::valid) {
      out.append(pending_, at, step.length);
    } else {
      out += kReplacementCharacter;
    }
    at += step.length;
  }
  pending_.erase(0, at);
  return out;
}

std::string Detokenizer::finish() {
  std::string rest = replace_malformed_utf8(pending_);
  pending_.clear();
  first_ = true;
  return rest;
}

}  // namespace kvarena
