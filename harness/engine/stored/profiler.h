#pragma once
// Quality that a form of a context costs: its answers to training queries beside those of the uncompressed cache.
// Feng et al. 2025, arXiv:2512.14946 (EvicPress), section 4.3.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/engine/stored/profile_run.h"

namespace kvarena::stored {

/// A profile by itself, as ProfileRun describes it, with what it measures: the seconds from stored bytes to the first
/// token of the first query, or, without queries, to the cache, the part of restoring, and what ready caches take of
/// forms that some tier holds so. `room`: answers at a time.
[[nodiscard]] std::vector<storage::Form> profile_forms(Transformer& model,
                                                       const std::shared_ptr<const Prefill>& context,
                                                       std::span<const CacheForm> forms, std::span<const Query> queries,
                                                       const AnswerQuality& quality, const AnswerRoom& room = {});

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
