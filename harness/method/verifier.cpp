#include "harness/method/verifier.h"

#include "harness/method/tapped_features.h"

namespace kvarena {

DraftSampling Verifier::draft_sampling() const {
  if (draft_sampling_ == "greedy") return DraftSampling::greedy;
  return draft_sampling_ == "rejection" ? DraftSampling::rejection : DraftSampling::coupled;
}

void VerificationMethod::parameters(ParameterVisitor& p) {
  part_->parameters(p);
  p("draft_sampling", part_->draft_sampling_)
      .one_of({"coupled", "greedy", "rejection"})
      .doc("above temperature 0: draft with the verifier's own draws, greedily, or freely with rejection");
}

Needs VerificationMethod::needs() const {
  Needs needs = part_->needs();
  const auto add = [&](const Nested<Method>& method) {
    if (method) needs = combine(needs, method->needs());
  };
  const Drafter drafter = part_->drafter();
  if (const auto* copy = std::get_if<CompressedCopy>(&drafter)) {
    add(copy->compressor);
    add(copy->auxiliary);
  }
  if (const auto* view = std::get_if<CacheView>(&drafter)) add(view->method);
  add(part_->verified_cache());
  if (std::holds_alternative<DraftingHead>(drafter))
    needs = combine(needs, {.taps = {TappedFeatures::kTaps.begin(), TappedFeatures::kTaps.end()}});
  return needs;
}

bool VerificationMethod::looks_behind_windows() const {
  const auto does = [](const Nested<Method>& method) { return method && method->looks_behind_windows(); };
  const Drafter drafter = part_->drafter();
  const auto* const copy = std::get_if<CompressedCopy>(&drafter);
  const auto* const view = std::get_if<CacheView>(&drafter);
  return does(part_->verified_cache()) || (view != nullptr && does(view->method)) ||
         (copy != nullptr && (!copy->schedule.empty() || does(copy->compressor) || does(copy->auxiliary)));
}

}  // namespace kvarena
