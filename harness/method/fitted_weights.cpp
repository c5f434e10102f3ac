#include "harness/method/fitted_weights.h"

#include "harness/core/error.h"

namespace kvarena {

std::shared_ptr<const FittedWeights> fitted_weights(const ModelFacts* model, const FittedRequest& request) {
  if (model == nullptr || !model->fitted) {
    fail({.place = request.method, .found = "no model", .expected = "one that its weights were fitted for"});
  }
  return model->fitted(request);
}

}  // namespace kvarena
