#pragma once
// Gathers what methods may know of a model (harness/method/model_facts.h) from its weights and its files.

#include <filesystem>
#include <memory>
#include <vector>

#include "harness/method/model_facts.h"
#include "harness/model/open_model.h"
#include "harness/model/transformer.h"

namespace kvarena {

/// Facts that the weights alone tell, no text. Fitted weights are looked for in `fitted_folders` and then in the
/// project's own folder; each is read once. Null `tiers`: usual_tiers(). The facts ask `model` for embeddings: it must
/// outlive them and stay where it is.
[[nodiscard]] std::shared_ptr<ModelFacts> model_facts(const Transformer& model,
                                                      std::vector<std::filesystem::path> fitted_folders = {},
                                                      std::shared_ptr<const storage::Hierarchy> tiers = nullptr);

/// The vocabulary and the given chat template. `tokenizer` must outlive the facts.
[[nodiscard]] TextFacts text_facts(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

}  // namespace kvarena
