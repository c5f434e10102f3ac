#pragma once
// Quality that a form of a context costs: its answers to training queries beside those of the uncompressed cache.
// Feng et al. 2025, arXiv:2512.14946 (EvicPress), section 4.3.

#include <functional>
#include <span>
#include <vector>

#include "harness/engine/session/session.h"
#include "harness/engine/stored/context_library.h"

namespace kvarena::stored {

/// A question behind a context.
struct Query {
  std::vector<int32_t> tokens;  // behind the context's; at least one
  StopRule stop;
};

/// How good an answer to query `query` is beside that of the uncompressed cache, 1 at best.
using AnswerQuality =
    std::function<double(size_t query, std::span<const int32_t> answer, std::span<const int32_t> full)>;

/// Greedy answers to all queries over a cache of the context, in shared passes.
[[nodiscard]] std::vector<std::vector<int32_t>> answer_queries(Transformer& model,
                                                               const std::shared_ptr<const ModelFacts>& facts,
                                                               std::span<const int32_t> context, const KvCache& cache,
                                                               std::span<const Query> queries);

/// The forms with their sizes and the mean quality of their answers, in their order. Every form is really stored and
/// restored. `context` was observed with what the forms' methods need. Without queries all qualities are 1. Throws
/// UserError with the form's label when its method cannot act on this context.
[[nodiscard]] std::vector<storage::Form> profile_forms(Transformer& model, const Prefill& context,
                                                       std::span<const CacheForm> forms, std::span<const Query> queries,
                                                       const AnswerQuality& quality);

/// When what requests get has departed from what was profiled.
class DriftWatch {
 public:
  /// A context has drifted when the mean quality of its last `answers` answers is more than `threshold` below the
  /// profiled quality of the forms that gave them.
  DriftWatch(double threshold, size_t answers) : threshold_(threshold), answers_(answers) {}

  /// One answer's quality, and what was profiled for the form that it came from.
  void note(const std::string& context, double quality, double profiled);
  [[nodiscard]] bool drifted(const std::string& context) const;
  /// The context was profiled anew: what it answered before does not count.
  void forget(const std::string& context) { gaps_.erase(context); }

 private:
  double threshold_;
  size_t answers_;
  std::map<std::string, std::vector<double>> gaps_;  // profiled minus reached, the newest last
};

}  // namespace kvarena::stored
