#include "harness/engine/reuse/token_run.h"

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {

TokenRun::TokenRun(Transformer& model, std::span<const int32_t> tokens, AttentionHooks* hooks, int64_t layers)
    : tokens_(tokens), hooks_(hooks), layers_(layers), cache_(model.make_cache()) {
  cache_.prompt_length = std::ssize(tokens);
}

SequencePass TokenRun::next_pass() {
  const int64_t count = std::min(chunk_, remaining());
  const auto tokens = tokens_.subspan(static_cast<size_t>(done_), static_cast<size_t>(count));
  done_ += count;
  return {.tokens = tokens, .cache = &cache_, .hooks = hooks_, .logits = LogitsRows::none, .exit_after = layers_};
}

void TokenRun::failed(const std::string& reason) { throw UserError(reason); }

}  // namespace kvarena
