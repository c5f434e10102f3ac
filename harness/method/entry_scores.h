#pragma once
// Retrieval entry by entry: helpers that several retrievers share.

#include <span>
#include <string>

#include "harness/method/retriever.h"

namespace kvarena {

/// q.k of the queries of a kv head's group with its first entries, as attention computes it but without the scale:
/// scores [group, end], where end = scores.size() / group.
void inner_products(const EntrySegment& entries, const LayerQueries& queries, int64_t kv_head, std::span<float> scores);

/// Each of `rows` rows of `scores` becomes its softmax, after a factor `scale`. sinks [rows]: a score beside those of
/// each row, scaled already (LayerShape::sinks); null: none.
void softmax_rows(std::span<float> scores, int64_t rows, float scale, const float* sinks = nullptr);

/// Sums of `rows` rows of scores, first row first.
template <class Sum>
[[nodiscard]] std::vector<Sum> sum_rows(std::span<const float> scores, int64_t rows) {
  std::vector<Sum> sums(scores.size() / static_cast<size_t>(rows));
  for (; !scores.empty(); scores = scores.subspan(sums.size())) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += scores[i];
  }
  return sums;
}

/// The attention probabilities of a kv head's query heads from their scores [group, n].
void attention_rows(std::span<float> scores, const LayerShape& shape, int64_t kv_head);

/// Throws UserError that names `method`: a score is not a number.
[[noreturn]] void refuse_numbers(const std::string& method);
/// Does so when one is not.
void require_numbers(std::span<const float> scores, const std::string& method);

/// The among.count candidates with the largest scores [at least among.last], ascending; of equals the lower index.
/// Numbers are required.
[[nodiscard]] std::vector<int32_t> best_candidates(std::span<const float> scores, const Candidates& among,
                                                   const std::string& method);

/// A retriever that gives every entry a score for every query.
class ScoringRetriever : public Retriever {
 public:
  /// `gqa`: how a group of query heads agrees on one list unless the user says otherwise.
  ScoringRetriever(std::string name, std::string gqa) : name_(std::move(name)), gqa_(std::move(gqa)) {}

  void parameters(ParameterVisitor& p) override;
  [[nodiscard]] Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                                 const Candidates& among) const final;

 protected:
  /// Entries that score() knows, the candidates among them; those indexed unless overridden.
  [[nodiscard]] virtual int64_t scored(const LayerIndex& index, const EntrySegment& /*entries*/) const {
    return index.entries;
  }
  /// Scores of the first entries for the group of `kv_head`: [group, scored()], like q.k, without the scale.
  virtual void score(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries, int64_t kv_head,
                     std::span<float> scores) const = 0;

  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::string gqa_;
};

}  // namespace kvarena
