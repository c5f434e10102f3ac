#include <algorithm>
#include <cmath>
#include <optional>

#include "harness/method/important_tokens.h"
#include "harness/method/reuser.h"

namespace kvarena {
namespace {

/// SpecCache: a small model reads the whole prompt while stored entries are loaded; tokens whose hidden states are long
/// in its deep layers are computed anew by the target from the first layer on.
///   I_i = mean over the last third of layers of |h_i|_2      (Eq. 1)
///   T   = the ceil(recompute * N) largest                    (Eq. 2)
///   T  += spans of even importance that T covers enough of   (Eqs. 3-6)
///   and all tokens of the target that spell a token of T     (Eq. 7)
/// Wen et al. 2026 (SpecCache), section 2. There is no code by the authors. Not said there and chosen here: the last
/// third is rounded up; the residual stream is taken before the final norm; the set may grow by any factor when spans
/// are completed ("max_factor"); "hold_ratio" (ours) starts from fewer tokens, so that the completed set has the size
/// that was asked for: cut to that size by importance, as section 2.3 has it, it would be T again. The first token's
/// norm, out of all proportion, needs no care: it scales both sides of Eq. 4 and cancels.
class SpecCache final : public Reuser {
 public:
  void parameters(ParameterVisitor& p) override {
    p("recompute", recompute_)
        .min(0)
        .max(1)
        .doc("share of the prompt's tokens that is chosen before spans are completed");
    p("model", model_)
        .doc("speculative model: a folder of KVARENA_HOME/models, a folder or .gguf file; the target if empty");
    p("model_layers", model_layers_).above(0).max(1).doc("share of the speculative model's layers that are run");
    p("layers", layers_)
        .one_of({"last_third", "last_two_thirds", "all", "final"})
        .doc("which of these layers' hidden states count");
    p("tau_smooth", tau_smooth_).min(0).doc("a span goes on while importance changes by less than this share");
    p("tau_cover", tau_cover_).min(0).doc("a span is completed when this share of it is chosen; above 1: never");
    p("max_span", max_span_).min(1).doc("tokens of a span at most");
    p("max_factor", max_factor_)
        .min(1)
        .doc("completed sets are cut to this many times the chosen tokens; absent: never");
    p("hold_ratio", hold_ratio_).doc("choose fewer tokens first, so that the completed set has the asked size");
  }

  std::optional<SpeculativeModel> speculative() const override {
    return SpeculativeModel{.path = model_, .layers = model_layers_};
  }

  std::vector<int32_t> select(const ReusePrompt& prompt) const override {
    const Speculation& read = *prompt.speculation;
    const std::vector<double> importance = token_importance(read, layers_);
    std::vector<int32_t> selected = align_tokens(completed(importance), read.ranges, read.target);
    selected.erase(std::ranges::lower_bound(selected, prompt.question), selected.end());
    return selected;
  }

 private:
  [[nodiscard]] std::vector<int32_t> completed(const std::vector<double>& importance) const {
    const auto wanted = static_cast<int64_t>(std::ceil(recompute_ * static_cast<double>(importance.size())));
    const std::vector<PromptPart> spans = smooth_spans(importance, tau_smooth_, max_span_);
    const auto complete = [&](int64_t count) {
      return complete_spans(spans, most_important(importance, count), tau_cover_);
    };
    if (hold_ratio_) return filled(complete(largest_start(wanted, complete)), importance, wanted);
    std::vector<int32_t> tokens = complete(wanted);
    const double most = max_factor_.value_or(0) * static_cast<double>(wanted);
    if (!max_factor_ || static_cast<double>(tokens.size()) <= most) return tokens;
    std::vector<double> of_set;
    for (const int32_t i : tokens) of_set.push_back(importance[i]);
    std::vector<int32_t> kept = most_important(of_set, static_cast<int64_t>(most));
    for (int32_t& i : kept) i = tokens[i];
    return kept;
  }

  /// Adds the most important of the others, up to `wanted` in all.
  static std::vector<int32_t> filled(std::vector<int32_t> tokens, std::vector<double> importance, int64_t wanted) {
    for (const int32_t i : tokens) importance[i] = -1;  // below every norm
    for (const int32_t i : most_important(importance, wanted - std::ssize(tokens))) tokens.push_back(i);
    std::ranges::sort(tokens);
    return tokens;
  }

  /// The most tokens to start from whose completed set has at most `wanted`. The set grows with its start.
  template <class Complete>
  static int64_t largest_start(int64_t wanted, const Complete& complete) {
    int64_t fits = 0;
    int64_t exceeds = wanted + 1;
    while (exceeds - fits > 1) {
      const int64_t middle = (fits + exceeds) / 2;
      (static_cast<int64_t>(complete(middle).size()) <= wanted ? fits : exceeds) = middle;
    }
    return fits;
  }

  double recompute_ = 0.15;
  std::string model_;
  double model_layers_ = 1;
  std::string layers_ = "last_third";
  double tau_smooth_ = 0.4;
  double tau_cover_ = 0.7;
  int64_t max_span_ = 16;
  std::optional<double> max_factor_;
  bool hold_ratio_ = false;
};

KVARENA_REUSER(SpecCache, {.name = "speccache",
                           .title = "SpecCache",
                           .summary = "Recomputes the tokens that a small model's deep layers call important.",
                           .paper = "ACL 2026, long paper 859"});

}  // namespace
}  // namespace kvarena
