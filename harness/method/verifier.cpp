#include "harness/method/verifier.h"

#include <nlohmann/json.hpp>

namespace kvarena {

DraftSampling Verifier::draft_sampling() const {
  if (draft_sampling_ == "greedy") return DraftSampling::greedy;
  return draft_sampling_ == "rejection" ? DraftSampling::rejection : DraftSampling::coupled;
}

void VerificationMethod::parameters(ParameterVisitor& p) {
  verifier_->parameters(p);
  p("draft_sampling", verifier_->draft_sampling_)
      .one_of({"coupled", "greedy", "rejection"})
      .doc("above temperature 0: draft with the verifier's own draws, greedily, or freely with rejection");
}

Needs VerificationMethod::needs() const {
  const std::string drafter = verifier_->drafter();
  return drafter.empty() ? Needs{} : make_method(nlohmann::json::parse(drafter), "drafter")->needs();
}

}  // namespace kvarena
