#pragma once
// A profile of a context's forms in steps that share passes with requests: nobody waits for it.
// Feng et al. 2025, arXiv:2512.14946 (EvicPress), section 4.3.

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "harness/engine/stored/context_library.h"
#include "harness/engine/stored/query_answers.h"

namespace kvarena::stored {

/// Lets passes have the processor before the calling thread and those that it starts.
void stand_behind_passes();

/// How good an answer to query `query` is beside that of the uncompressed cache, 1 at best.
using AnswerQuality =
    std::function<double(size_t query, std::span<const int32_t> answer, std::span<const int32_t> full)>;

/// Answers all queries over the uncompressed cache, then over each form, which is really stored and restored, on a
/// thread of its own while the one before it answers. Forms and model must outlive it.
class ProfileRun {
 public:
  ProfileRun(Transformer& model, std::shared_ptr<const Prefill> context, std::span<const CacheForm> forms,
             std::vector<Query> queries, AnswerQuality quality);
  ProfileRun(const ProfileRun&) = delete;  // the form that is being made knows where it is
  ProfileRun& operator=(const ProfileRun&) = delete;

  /// Members of the next pass; none while a form is being made, and when it is finished. This, passed() and wait()
  /// throw UserError with a form's label when its method cannot act on the context.
  [[nodiscard]] std::vector<PassMember*> next(const AnswerRoom& room);
  /// Takes what the pass with next()'s members brought.
  void passed();
  /// Waits at most so long for the form that is being made.
  void wait(double seconds);
  [[nodiscard]] bool finished() const { return !answers_ && profile_.size() == forms_.size(); }
  /// The forms with their sizes and the mean quality of their answers, in their order; 1 without queries.
  [[nodiscard]] const std::vector<storage::Form>& profile() const { return profile_; }

 private:
  struct Made {
    int64_t bytes = 0;
    std::optional<KvCache> cache;  // of a form that is judged
  };
  void make_next();
  [[nodiscard]] Made make(const CacheForm& form) const;
  /// Goes on to the next form that is judged, as far as they are made.
  void begin_answers();
  [[noreturn]] void fails(size_t form, const char* reason) const;

  Transformer* model_;
  std::shared_ptr<const Prefill> context_;
  std::span<const CacheForm> forms_;
  std::vector<Query> queries_;
  AnswerQuality quality_;
  std::vector<storage::Form> profile_;
  std::vector<std::vector<int32_t>> full_;  // answers over the uncompressed cache, once they are there
  std::optional<KvCache> cache_;            // that answers_ are over, of the newest form of profile_
  std::optional<QueryAnswers> answers_;
  std::future<Made> making_;
};

}  // namespace kvarena::stored
