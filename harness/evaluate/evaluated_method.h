#pragma once
// Methods under evaluation.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/core/failure.h"
#include "harness/experiment/evaluator.h"
#include "harness/method/method.h"

namespace kvarena::evaluate {

struct EvaluatedMethod {
  std::unique_ptr<Method> method;
  bool reference = false;  // of the reference family: active although it changes nothing
  bool retrieves = false;  // of the retrieval family: what a step attends to is what it is for
};

/// Returns `evaluate(method)` for each method; an exception becomes the failure of its method alone.
template <typename Evaluate>
std::vector<experiment::SampleOutcome> outcomes_of(std::span<const EvaluatedMethod> methods, const Evaluate& evaluate) {
  std::vector<experiment::SampleOutcome> outcomes;
  for (const EvaluatedMethod& evaluated : methods) {
    experiment::SampleOutcome& outcome = outcomes.emplace_back();
    const std::string failure = failure_of([&] { outcome = evaluate(evaluated); });
    if (!failure.empty()) outcome = {.failure = failure};
  }
  return outcomes;
}

}  // namespace kvarena::evaluate
