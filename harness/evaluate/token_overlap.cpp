#include "harness/evaluate/token_overlap.h"

#include <cmath>
#include <numeric>
#include <span>

#include "harness/engine/reuse/speculation.h"
#include "harness/evaluate/stored_values.h"
#include "harness/method/important_tokens.h"
#include "metrics/distribution/selection.h"

namespace kvarena::evaluate {
namespace {

std::vector<int32_t> important(std::span<const double> importance, double share) {
  return most_important(importance, static_cast<int64_t>(std::ceil(share * static_cast<double>(importance.size()))));
}

double similarity(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  const std::vector<int64_t> left(a.begin(), a.end()), right(b.begin(), b.end());
  return metrics::jaccard(left, right);
}

}  // namespace

std::vector<double> first_layer_overlaps(const Speculation& target, double share) {
  const auto tokens = static_cast<size_t>(target.tokens);
  std::vector<int32_t> first;
  std::vector<double> overlaps;
  for (size_t layer = 0; layer < static_cast<size_t>(target.layers); ++layer) {
    const auto norms = std::span(target.norms).subspan(layer * tokens, tokens);
    const std::vector<int32_t> chosen = important(std::vector<double>(norms.begin(), norms.end()), share);
    if (layer == 0) first = chosen;
    overlaps.push_back(similarity(first, chosen));
  }
  return overlaps;
}

double overlap_with_target(const Speculation& speculative, const Speculation& target, double share) {
  const std::vector<int32_t> chosen = important(token_importance(speculative, "last_third"), share);
  return similarity(align_tokens(chosen, speculative.ranges, speculative.target),
                    important(token_importance(target, "last_third"), share));
}

const Speculation& TokenOverlaps::own() {
  if (!own_) own_ = speculate(*target_, request_->prompt, request_->layout, {});
  return *own_;
}

void TokenOverlaps::add_to(results::SampleResult& result, const EvaluatedMethod& evaluated) {
  const Reuser* reuser = evaluated.method->reuser();
  const auto asked = reuser == nullptr ? std::nullopt : reuser->speculative();
  if (asked) {
    const Speculation read = speculate(*target_, request_->prompt, request_->layout, *asked);
    add(result, metrics::kTokenOverlap, overlap_with_target(read, own(), kImportantShare));
  } else if (evaluated.reference) {
    const std::vector<double> overlaps = first_layer_overlaps(own(), kImportantShare);
    const auto deep = std::span(overlaps).last((overlaps.size() + 2) / 3);
    add(result, metrics::kShallowDeepOverlap,
        std::accumulate(deep.begin(), deep.end(), 0.0) / static_cast<double>(deep.size()));
    add_series(result, metrics::kFirstLayerOverlap, {overlaps.begin(), overlaps.end()});
  }
}

}  // namespace kvarena::evaluate
