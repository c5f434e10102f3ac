#include "harness/method/verifier.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kvarena {

int32_t Verifier::draft(std::span<const float> logits) const {  // ties: the lowest id, as the engine's greedy rule
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

Needs VerificationMethod::needs() const {
  const std::string drafter = verifier_->drafter();
  return drafter.empty() ? Needs{} : make_method(nlohmann::json::parse(drafter), "drafter")->needs();
}

}  // namespace kvarena
