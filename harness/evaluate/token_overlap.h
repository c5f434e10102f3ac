#pragma once
// Agreement of two models, or of two layers, on the important tokens of a prompt. Wen et al. 2026 (SpecCache),
// Figure 3.

#include <optional>
#include <vector>

#include "harness/evaluate/evaluated_method.h"
#include "harness/evaluate/request.h"
#include "harness/method/reuser.h"
#include "harness/model/transformer.h"

namespace kvarena::evaluate {

/// Share of a prompt's tokens that counts as important in the figure.
inline constexpr double kImportantShare = 0.2;

/// Jaccard similarity of the `share` most important tokens of the target's first layer with those of each of its
/// layers, [layers]; the first is 1.
[[nodiscard]] std::vector<double> first_layer_overlaps(const Speculation& target, double share);

/// Jaccard similarity of the tokens that the last thirds of two models' layers call important. The speculative model's
/// choice is mapped to the target's tokens, of which it may be more than the share.
[[nodiscard]] double overlap_with_target(const Speculation& speculative, const Speculation& target, double share);

/// Overlaps of one request; the target reads its prompt when the first method is asked for.
class TokenOverlaps {
 public:
  /// Both must outlive it.
  TokenOverlaps(Transformer& target, const Request& request) : target_(&target), request_(&request) {}

  /// Adds, for a method with a speculative model, token_overlap with the target's own choice; for a reference the
  /// series first_layer_overlap, and shallow_deep_overlap, its mean over the last third of the layers.
  void add_to(results::SampleResult& result, const EvaluatedMethod& evaluated);

 private:
  const Speculation& own();

  Transformer* target_;
  const Request* request_;
  std::optional<Speculation> own_;
};

}  // namespace kvarena::evaluate
