#include <algorithm>
#include <optional>

#include "harness/method/eviction.h"

namespace kvarena {
namespace {

using storage::Choice;
using storage::Context;
using storage::Form;
using storage::StorageTier;

/// Compression and eviction decided together, by what they cost: a choice of form and tier is worth
/// (alpha * quality - TTFT) * frequency. A new context takes the form of the highest utility on the fastest tier; a
/// full tier takes, one after another, the steps that lose the least utility: a smaller form there, or any form on a
/// slower tier; then the same is done for the tiers below.
/// Feng et al. 2025, arXiv:2512.14946, section 4.4 and Algorithm 1. As printed the algorithm updates another variable
/// than the one that its loop tests, evicts without a form and does not descend; the text is followed instead. Where a
/// new context goes is the argmax of quality in Algorithm 1 and of utility in the text: `initial`. No code by the
/// authors is public; the test restates the paper's numbers.
class EvicPress final : public storage::Policy {
 public:
  void parameters(ParameterVisitor& p) {
    p("alpha", alpha_).min(0).doc("seconds of TTFT that a whole point of quality is worth");
    p("initial", initial_).one_of({"utility", "quality"}).doc("what a new context's form is the best of");
    p("key", key_)
        .one_of({"drop", "drop_per_byte"})
        .doc("the step that is taken loses the least utility, or the least for each byte that it frees");
    p("refill", refill_)
        .doc(
            "what the last step frees beyond need goes to the contexts that gain most by it; the paper leaves it "
            "empty");
    p("reprofile_threshold", reprofile_threshold_)
        .min(0)
        .doc("a context whose answers stay so far below the profiled quality is profiled anew; 2: never");
    p("rearrange_after", rearrange_after_)
        .min(0)
        .doc(
            "requests after which contexts are placed anew by how often each was used; 0: when one was profiled, as in "
            "the paper");
    p("originals", originals_)
        .doc(
            "the last tier keeps every uncompressed cache beside, so that any form can be made at any time; without "
            "them a form can only be compressed further by its own method");
  }

  Choice first(const Context& context, std::span<const StorageTier> tiers) const override {
    for (int64_t tier = 0;; ++tier) {
      std::optional<Choice> best;
      for (const Choice& choice : choices(context, tiers, tier)) {
        if (!best || worth(context, choice, tiers) > worth(context, *best, tiers)) best = choice;
      }
      if (best) return *best;  // on the last tier every form fits
    }
  }

  storage::Step make_room(const storage::View& view, int64_t tier) const override {
    std::optional<storage::Step> best;
    double least = 0;
    for (size_t i = 0; i < view.contexts.size(); ++i) {
      const Context& context = view.contexts[i];
      if (context.at.tier != tier) continue;
      const double now = storage::utility(context, context.at, view.tiers, alpha_);
      for (auto target = tier; target < static_cast<int64_t>(view.tiers.size()); ++target) {
        for (const Choice& choice : choices(context, view.tiers, target)) {
          const int64_t freed = storage::bytes_of(context, context.at, view.tiers) -
                                (target == tier ? storage::bytes_of(context, choice, view.tiers) : 0);
          if ((target == tier && freed <= 0) || !can_become(context, choice)) continue;
          const double drop = now - storage::utility(context, choice, view.tiers, alpha_);
          const double cost = key_ == "drop" ? drop : drop / static_cast<double>(std::max<int64_t>(freed, 1));
          if (best && cost >= least) continue;
          best = storage::Step{.context = i, .to = choice};
          least = cost;
        }
      }
    }
    return best.value();  // a context on a full tier can always go to the last one as it is
  }

  std::optional<storage::Step> use_room(const storage::View& view) const override {
    if (!refill_) return std::nullopt;
    const std::vector<int64_t> used = storage::bytes_per_tier(view.contexts, view.tiers);
    std::optional<storage::Step> best;
    double most = 1e-12;  // below it two sums of the same terms may differ for ever
    for (size_t i = 0; i < view.contexts.size(); ++i) {
      const Context& context = view.contexts[i];
      const double now = storage::utility(context, context.at, view.tiers, alpha_);
      for (int64_t tier = 0; tier < static_cast<int64_t>(view.tiers.size()); ++tier) {
        const auto t = static_cast<size_t>(tier);
        const int64_t own = tier == context.at.tier ? storage::bytes_of(context, context.at, view.tiers) : 0;
        const int64_t room = view.tiers[t].capacity - used[t] + own;
        for (const Choice& choice : choices(context, view.tiers, tier)) {
          if (storage::bytes_of(context, choice, view.tiers) > room || !can_become(context, choice)) continue;
          const double gain = storage::utility(context, choice, view.tiers, alpha_) - now;
          if (gain <= most) continue;
          best = storage::Step{.context = i, .to = choice};
          most = gain;
        }
      }
    }
    return best;
  }

  bool chooses_forms() const override { return true; }
  std::optional<double> alpha() const override { return alpha_; }
  std::optional<double> drift_threshold() const override { return reprofile_threshold_; }
  bool rearranges() const override { return originals_; }
  int64_t rearranges_after() const override { return rearrange_after_; }

 private:
  /// Forms that fit `tier`, which must not be smaller than one of them.
  static std::vector<Choice> choices(const Context& context, std::span<const StorageTier> tiers, int64_t tier) {
    std::vector<Choice> all;
    for (size_t form = 0; form < context.forms.size(); ++form) {
      const Choice choice{.form = static_cast<int64_t>(form), .tier = tier};
      if (storage::bytes_of(context, choice, tiers) <= tiers[static_cast<size_t>(tier)].capacity) all.push_back(choice);
    }
    return all;
  }

  double worth(const Context& context, const Choice& choice, std::span<const StorageTier> tiers) const {
    return initial_ == "quality" ? context.form(choice).quality : storage::utility(context, choice, tiers, alpha_);
  }

  bool can_become(const Context& context, const Choice& choice) const {
    const Form& from = context.form(context.at);
    const Form& to = context.form(choice);
    return originals_ || choice.form == context.at.form || from.method.empty() ||
           (from.method == to.method && to.keep < from.keep);
  }

  double alpha_ = 1;
  std::string initial_ = "utility";
  std::string key_ = "drop";
  double reprofile_threshold_ = 0.3;
  bool refill_ = false;
  int64_t rearrange_after_ = 0;
  bool originals_ = true;
};

KVARENA_EVICTION(EvicPress,
                 {.name = "evicpress",
                  .title = "EvicPress",
                  .summary = "Form and tier of every context by utility: quality against time to first token.",
                  .paper = "arXiv:2512.14946, section 4"});

}  // namespace
}  // namespace kvarena
