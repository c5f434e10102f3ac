// kvarena model: looking at the backend itself.

#include "harness/cli/commands.h"

namespace kvarena::cli {

Command model_command() {
  Command command{.name = "model",
                  .summary = "the tokenizer, the logits and the answers of a model",
                  .examples = {{"kvarena model generate --chat --prompt 'What is a cache?'", "an answer as it comes"},
                               {"kvarena model logits --prompt 'The capital of France is'", "what would come next"}}};
  command.commands = {model_tokenize_command(), model_logits_command(), model_generate_command()};
  return command;
}

}  // namespace kvarena::cli
