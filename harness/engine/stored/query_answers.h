#pragma once
// Greedy answers to queries over one cache of a context, in passes that others may share.

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "harness/engine/session/session.h"

namespace kvarena::stored {

/// A question behind a context.
struct Query {
  std::vector<int32_t> tokens;  // behind the context's; at least one
  StopRule stop;
};

/// Room for answers in one pass.
struct AnswerRoom {
  int64_t answers = std::numeric_limits<int64_t>::max();  // at a time
  int64_t tokens = std::numeric_limits<int64_t>::max();
  int64_t bytes = std::numeric_limits<int64_t>::max();  // of one copy of the cache and what answers add to it
};

/// Answers that do not depend on how passes are shared. Everything given must outlive it.
class QueryAnswers {
 public:
  QueryAnswers(Transformer& model, std::shared_ptr<const ModelFacts> facts, std::span<const int32_t> context,
               const KvCache& cache, std::span<const Query> queries);
  ~QueryAnswers();

  /// Members of the next pass, as many as there is room for; they stay where they are until passed().
  [[nodiscard]] std::vector<PassMember*> next(const AnswerRoom& room);
  /// Takes what the pass brought. Throws UserError with the reason when a query cannot be answered.
  void passed();
  [[nodiscard]] bool finished() const { return answered_ == queries_.size(); }
  /// By query.
  [[nodiscard]] const std::vector<std::vector<int32_t>>& answers() const { return answers_; }

 private:
  class Answering;
  void start();
  /// Answers at a time that so many bytes have room for.
  [[nodiscard]] int64_t that_fit(int64_t bytes) const;

  Transformer* model_;
  std::shared_ptr<const ModelFacts> facts_;
  std::span<const int32_t> context_;
  KvCache cache_;  // that answers grow clones of
  std::span<const Query> queries_;
  const Method full_;
  std::vector<std::vector<int32_t>> answers_;
  std::vector<std::unique_ptr<Answering>> running_;
  size_t started_ = 0;
  size_t answered_ = 0;
};

/// All answers, by themselves.
[[nodiscard]] std::vector<std::vector<int32_t>> answer_queries(Transformer& model,
                                                               const std::shared_ptr<const ModelFacts>& facts,
                                                               std::span<const int32_t> context, const KvCache& cache,
                                                               std::span<const Query> queries,
                                                               const AnswerRoom& room = {});

}  // namespace kvarena::stored
