#include "harness/method/verifier.h"

#include <nlohmann/json.hpp>

namespace kvarena {

DraftSampling parse_draft_sampling(const std::string& name) {
  if (name == "greedy") return DraftSampling::greedy;
  return name == "rejection" ? DraftSampling::rejection : DraftSampling::coupled;
}

void draft_sampling_parameter(ParameterVisitor& p, std::string& name) {
  p("draft_sampling", name)
      .one_of({"coupled", "greedy", "rejection"})
      .doc("above temperature 0: draft with the verifier's own draws, greedily, or freely with rejection");
}

Needs VerificationMethod::needs() const {
  const std::string drafter = verifier_->drafter();
  return drafter.empty() ? Needs{} : make_method(nlohmann::json::parse(drafter), "drafter")->needs();
}

}  // namespace kvarena
