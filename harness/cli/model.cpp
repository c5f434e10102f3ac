// kvarena model: looking at the backend itself.

#include "harness/cli/commands.h"

namespace kvarena::cli {

Command model_command() {
  Command command{.name = "model",
                  .summary = "models that are here, and the tokenizer, logits and answers of one",
                  .examples = {{"kvarena model list", "what is there, and where"},
                               {"kvarena model generate --chat --prompt 'What is a cache?'", "an answer as it comes"},
                               {"kvarena model logits --prompt 'The capital of France is'", "what would come next"}}};
  command.commands = {model_list_command(),     model_check_command(),  model_pull_command(),
                      model_tokenize_command(), model_logits_command(), model_generate_command()};
  return command;
}

}  // namespace kvarena::cli
