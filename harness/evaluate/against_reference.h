#pragma once
// One method's answer beside full KV's, whatever engine computed them.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/engine/session/session.h"
#include "harness/evaluate/request.h"
#include "harness/experiment/evaluator.h"
#include "metrics/distribution/divergence.h"

namespace kvarena::evaluate {

/// Full KV's answer, with the logits of every step.
struct Reference {
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;  // [steps][vocab_size]
  int64_t bytes = 0;                       // of the prompt's full cache; 0 where nobody knows

  /// Whether `fed` are its first tokens.
  [[nodiscard]] bool begins_with(std::span<const int32_t> fed) const;
};

/// Session's options that collect logits into the reference.
[[nodiscard]] SessionOptions options_of_reference(const Request& request, Reference& reference);

/// Adds the step's divergence where it continues `steps`, and the reference has the step.
void compare_step(std::vector<metrics::StepDivergence>& steps, const Reference& reference, const Request& request,
                  int64_t step, std::span<const float> row);

/// Describes a free-running answer: its text, scores, bytes, traffic, rounds, and what a judge will be told.
[[nodiscard]] experiment::SampleOutcome free_outcome(const Session& session, const Request& request,
                                                     const Reference& reference);

/// As free_outcome(), of an answer whose text, and full KV's, are given.
[[nodiscard]] experiment::SampleOutcome outcome_of(const Session& session, const Request& request,
                                                   const std::string& answer, const std::string& full_answer,
                                                   int64_t full_bytes);

/// Adds exact_match_full and first_divergence.
void add_departure(results::SampleResult& result, const std::vector<int32_t>& answer, const Reference& reference);

}  // namespace kvarena::evaluate
