#pragma once
// A workload's sample as a context that many questions are asked about.

#include <deque>
#include <string>
#include <vector>

#include "datasets/questions.h"
#include "harness/evaluate/loaded_model.h"
#include "harness/experiment/config.h"

namespace kvarena::evaluate {

/// A context, and requests whose prompts begin with its `tokens`. Requests point into `samples`, so it is not copied.
struct ContextWithQueries {
  std::string id;
  std::vector<int32_t> tokens;
  std::deque<datasets::Sample> samples;  // one a question
  std::vector<Request> train;
  std::vector<Request> test;

  ContextWithQueries() = default;
  ContextWithQueries(ContextWithQueries&&) = default;
  ContextWithQueries& operator=(ContextWithQueries&&) = default;
  ContextWithQueries(const ContextWithQueries&) = delete;
  ContextWithQueries& operator=(const ContextWithQueries&) = delete;
};

/// The sample's text in front of its question is the context. Questions are those of `given`, or, where there is none,
/// made from sentences of that text, the first test question being the sample's own, which also stands in for test
/// questions that `given` lacks. A text of few sentences gives fewer questions than asked for. Throws UserError when it
/// gives none, and when the sample is all question.
[[nodiscard]] ContextWithQueries ask_about(LoadedModel& model, const datasets::Sample& sample,
                                           const experiment::EngineSettings& engine,
                                           const experiment::ContextSettings& settings,
                                           const datasets::ContextQuestions* given);

}  // namespace kvarena::evaluate
