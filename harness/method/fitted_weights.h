#pragma once
// A model's artifact, as a method asks for it.

#include <memory>

#include "harness/method/model_facts.h"

namespace kvarena {

/// The artifact of the model. Throws UserError where there is no model, or none that knows of artifacts, and what
/// ModelFacts::fitted throws.
[[nodiscard]] std::shared_ptr<const FittedWeights> fitted_weights(const ModelFacts* model,
                                                                  const FittedRequest& request);

}  // namespace kvarena
