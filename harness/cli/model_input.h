#pragma once
// Options of the commands that run a model: the model and the prompt.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/option_set.h"
#include "harness/core/home.h"
#include "harness/method/model_facts.h"
#include "harness/model/open_model.h"
#include "harness/model/transformer.h"

namespace kvarena::cli {

/// --model, --dtype, --kv-dtype, --arithmetic, --device, --devices.
struct ModelOptions {
  std::string model = kDefaultModel;
  std::string dtype = "bf16";
  std::optional<std::string> kv_dtype;
  std::string arithmetic = "exact";
  std::string device = "cpu";
  std::vector<std::string> devices;  // numbers

  void declare(OptionSet& o);
  /// Types of weights and entries.
  [[nodiscard]] TransformerOptions types() const;
};

/// Opens the model: headers and vocabulary.
[[nodiscard]] OpenedModel open_chosen(const ModelOptions& options);
/// Loads the weights. Called last, once everything else about a command line is known to be right.
[[nodiscard]] Transformer load_weights(const OpenedModel& model, const ModelOptions& options);

/// Facts of the model for methods; valid as long as `model`. On a device its host tier lies where that copies from at
/// full speed, as a run's does.
[[nodiscard]] std::shared_ptr<const ModelFacts> facts_of(const OpenedModel& model, const Transformer& transformer,
                                                         const ModelOptions& options);

/// --prompt, --prompt-file, --ids, --chat: exactly one of the first three.
struct PromptOptions {
  std::optional<std::string> prompt;
  std::optional<std::filesystem::path> file;
  std::optional<std::string> ids;
  bool chat = false;

  void declare(OptionSet& o);
};

/// The prompt's tokens. With chat the text is one user turn of the model's own template. Throws UserError when there is
/// no prompt or more than one, when there is no token in it,
/// and when an id is not one.
[[nodiscard]] std::vector<int32_t> prompt_tokens(const PromptOptions& options, const OpenedModel& model);

/// The tokens that end an answer: the model's and the tokenizer's ends of sequence.
[[nodiscard]] std::vector<int32_t> stop_tokens(const OpenedModel& model);

}  // namespace kvarena::cli
