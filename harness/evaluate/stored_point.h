#pragma once
// State that all methods of a point over stored contexts share: queries, and full KV's answers to them.

#include <memory>
#include <span>
#include <vector>

#include "harness/engine/serving/serving_engine.h"
#include "harness/evaluate/stored_set.h"

namespace kvarena::evaluate {

/// A request's question about a context.
struct Query {
  size_t context = 0;
  size_t question = 0;
};

/// Requests of the past, before the first that is measured.
struct QueryHistory {
  std::vector<int64_t> uses;  // by context, its own coming counted
  std::vector<size_t> order;  // contexts by their last use, the newest last; unused ones come first
};

struct StoredPoint {
  const StoredSet* set = nullptr;
  std::vector<Query> asks;
  QueryHistory before;
  std::vector<std::vector<int32_t>> full_answers;  // by request
  std::vector<double> full_scores;                 // 1 each
  std::vector<int64_t> prompt_tokens;
  double capacity = 0;
};

/// Draws the queries and answers them with full KV. The set must outlive the result. Throws UserError when full KV has
/// no answers.
[[nodiscard]] StoredPoint read_point(Transformer& model, const StoredContextsTask& task, const StoredSet& set);

[[nodiscard]] const Request& request_of(const StoredContextsTask& task, const Query& ask);
/// The point's requests, each with its whole prompt.
[[nodiscard]] std::vector<ServedRequest> served_requests(const StoredContextsTask& task, const StoredPoint& point,
                                                         const Method& full);

}  // namespace kvarena::evaluate
