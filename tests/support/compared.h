#pragma once
// Counts of what a test compared with code that is not ours; `scripts/scorers` makes docs/scorers.md of them.

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace kvarena::testing {

/// Records in the test's report that `count` answers were scored by `metric` as by the official code.
inline void compared_scores(const std::string& metric, size_t count) {
  ::testing::Test::RecordProperty("scores_of_" + metric, static_cast<int64_t>(count));
}

/// Records in the test's report that `count` prompts of a family of workloads are those of the official code.
inline void compared_prompts(const std::string& family, size_t count) {
  ::testing::Test::RecordProperty("prompts_of_" + family, static_cast<int64_t>(count));
}

}  // namespace kvarena::testing
