#pragma once
// A value of a sample's outcome.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "harness/experiment/evaluator.h"

namespace kvarena::evaluate {

/// The metric's value; -1, and a failed test, where the outcome has none.
[[nodiscard]] inline double value_of(const experiment::SampleOutcome& outcome, const std::string& metric) {
  const auto& values = outcome.result.values;
  const auto found = std::ranges::find(values, metric, &results::MetricValue::metric);
  EXPECT_NE(found, values.end()) << metric;
  return found == values.end() ? -1 : found->value;
}

}  // namespace kvarena::evaluate
