#pragma once
// Methods under evaluation.

#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "harness/experiment/evaluator.h"
#include "harness/method/method.h"

namespace kvarena::evaluate {

struct EvaluatedMethod {
  std::unique_ptr<Method> method;
  bool reference = false;  // of the reference family: active although it changes nothing
};

/// Returns `evaluate(method)` for each method; an exception becomes the failure of its method alone.
template <typename Evaluate>
std::vector<experiment::SampleOutcome> outcomes_of(std::span<const EvaluatedMethod> methods, const Evaluate& evaluate) {
  std::vector<experiment::SampleOutcome> outcomes;
  for (const EvaluatedMethod& evaluated : methods) {
    try {
      outcomes.push_back(evaluate(evaluated));
    } catch (const std::exception& error) {
      outcomes.push_back({.failure = error.what()});
    }
  }
  return outcomes;
}

}  // namespace kvarena::evaluate
