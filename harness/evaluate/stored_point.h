#pragma once
// State that all methods of a point over stored contexts share: queries, full KV's answers, prefilled contexts, and the
// profiles of their forms.

#include <memory>
#include <span>
#include <vector>

#include "harness/engine/serving/serving_engine.h"
#include "harness/engine/stored/profile_run.h"
#include "harness/evaluate/stored_contexts.h"

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
  std::vector<Query> asks;
  QueryHistory before;
  std::vector<std::vector<int32_t>> full_answers;  // by request
  std::vector<double> full_scores;                 // 1 each
  std::vector<int64_t> prompt_tokens;
  double capacity = 0;
  std::vector<stored::CacheForm> forms;              // that policies choose among
  std::shared_ptr<stored::Originals> originals;      // by context
  std::vector<std::vector<storage::Form>> profiles;  // by context, of `forms`; empty where nobody chooses
  std::vector<int64_t> full_bytes;                   // by context, uncompressed and stored
  double disk_bytes_per_s = 0;                       // of the disk tier: as given, or as measured
};

/// Draws the queries, answers them with full KV, and prefills every context once with the needs of all methods; the
/// caches lie in `originals`. Throws UserError when full KV has no answers.
[[nodiscard]] StoredPoint read_point(Transformer& model, const StoredContextsTask& task,
                                     std::span<const EvaluatedMethod> methods, const std::filesystem::path& originals);

[[nodiscard]] const Request& request_of(const StoredContextsTask& task, const Query& ask);
/// The point's requests, each with its whole prompt.
[[nodiscard]] std::vector<ServedRequest> served_requests(const StoredContextsTask& task, const StoredPoint& point,
                                                         const Method& full);
/// Whether a policy chooses among forms, instead of leaving contexts as they come.
[[nodiscard]] bool chooses(const Method& method);
/// Forms that a method stores contexts in.
[[nodiscard]] std::vector<stored::CacheForm> forms_of(const Method& method, const StoredPoint& point);
/// Begins to profile the point's forms of a context by its answers to `asked`. Task and point must outlive it.
[[nodiscard]] std::unique_ptr<stored::ProfileRun> start_profile(Transformer& model, const StoredContextsTask& task,
                                                                const StoredPoint& point, size_t context,
                                                                std::shared_ptr<const Prefill> original,
                                                                std::span<const Request* const> asked);

}  // namespace kvarena::evaluate
