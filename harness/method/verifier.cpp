#include "harness/method/verifier.h"

#include <nlohmann/json.hpp>

namespace kvarena {

DraftSampling Verifier::draft_sampling() const {
  if (draft_sampling_ == "greedy") return DraftSampling::greedy;
  return draft_sampling_ == "rejection" ? DraftSampling::rejection : DraftSampling::coupled;
}

std::unique_ptr<Fitter> Verifier::fitter() const { return nullptr; }

void VerificationMethod::parameters(ParameterVisitor& p) {
  verifier_->parameters(p);
  p("draft_sampling", verifier_->draft_sampling_)
      .one_of({"coupled", "greedy", "rejection"})
      .doc("above temperature 0: draft with the verifier's own draws, greedily, or freely with rejection");
}

Needs VerificationMethod::needs() const {
  Needs needs;
  for (const std::string& spec :
       {verifier_->drafter(), verifier_->draft_view(), verifier_->verified_cache(), verifier_->auxiliary()}) {
    if (!spec.empty()) needs = combine(needs, make_method(nlohmann::json::parse(spec), "drafter")->needs());
  }
  if (verifier_->draft_head()) needs = combine(needs, {.taps = {Tap::low, Tap::middle, Tap::high}});
  return needs;
}

}  // namespace kvarena
